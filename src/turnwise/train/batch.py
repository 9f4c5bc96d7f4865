"""Trajectories and their advantages to packed rows, with an account of every sampled token: trained, or why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from turnwise.config.run import TrainConfig
from turnwise.rows import Row, pack, weigh
from turnwise.train.reduce import reduce
from turnwise.trees import Tree, merge
from turnwise.types import BreakKind, Floats, Trajectory


def batch(
    trajectories: Sequence[Trajectory],
    advantage: Floats,
    numbers: Sequence[int],
    config: TrainConfig,
    reduction: str = "token",
) -> tuple[list[Row], Counter[str]]:
    """Merge, weigh and pack the trajectories numbered `numbers`; `advantage` is indexed by those numbers.

    eligible tokens = trained + dropped, by reason.
    """
    counts = Counter({"dropped/sampled_twice": 0, "dropped/no_signal": 0})
    counts["tokens_eligible"] = sum(trajectories[i].sampled_tokens for i in numbers)
    trees: list[Tree] = []
    sound = [i for i in numbers if trajectories[i].error is None]
    counts["dropped/failed"] = sum(trajectories[i].sampled_tokens for i in numbers if i not in set(sound))
    for members in _shared(trajectories, sound, config.share):
        sampled = sum(trajectories[i].sampled_tokens for i in members)
        merged = _fitting(trajectories, members, config.row_tokens)
        counts["dropped/sampled_twice"] += sampled - sum(len(t.entries) for t in merged)
        for tree in merged:
            weighed, silent = weigh(tree, advantage)
            counts["dropped/no_signal"] += silent
            trees.append(weighed)
    counts.update(_turns([trajectories[i] for i in numbers]))
    rows, cut = pack(trees, config.row_tokens)
    reduce(rows, reduction)
    counts.update({f"dropped/{reason}": n for reason, n in cut.items()})
    counts["branches"] = sum(t.branches for t in trees)
    counts["tokens_distinct"] = sum(len(t) for t in trees)
    counts["tokens_forwarded"] = sum(len(r) for r in rows)
    counts["tokens_trained"] = sum(len(r.entries) for r in rows)
    return rows, counts


def _fitting(trajectories: Sequence[Trajectory], members: Sequence[int], budget: int) -> list[Tree]:
    """One tree of all members, or of each half where that passes the budget: no sibling is cut for another."""
    merged = merge([trajectories[i] for i in members], members)
    if len(members) == 1 or all(len(tree) <= budget for tree in merged):
        return merged
    half = len(members) // 2
    return [tree for part in (members[:half], members[half:]) for tree in _fitting(trajectories, part, budget)]


def _shared(trajectories: Sequence[Trajectory], numbers: Sequence[int], share: str) -> list[list[int]]:
    """Which trajectories go into one tree."""
    if share == "trajectory":
        return [[i] for i in numbers]
    groups: dict[int, list[int]] = {}
    for i in numbers:
        groups.setdefault(trajectories[i].group, []).append(i)
    return list(groups.values())


def _turns(trajectories: Sequence[Trajectory]) -> Counter[str]:
    turns = [turn for t in trajectories for turn in t.turns]
    counts = Counter(
        turns=len(turns),
        tokens_by_turn=sum(len(t.prompt_ids) + len(t.completion_ids) for t in turns),
        **{f"prefix_mismatch/{kind}": 0 for kind in BreakKind},
    )
    counts.update(f"prefix_mismatch/{turn.prefix.kind}" for turn in turns if turn.prefix is not None)
    return counts
