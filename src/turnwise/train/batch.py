"""Trajectories and their advantages to packed rows, with an account of every sampled token: trained, or why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from turnwise.config.run import TrainConfig
from turnwise.rows import Row, pack, weigh
from turnwise.train.normalize import normalize
from turnwise.train.reduce import reduce
from turnwise.trees import Tree, merge
from turnwise.trees.echo import Choice, Rule, attach, choose
from turnwise.trees.why import Why
from turnwise.types import BreakKind, Floats, Trajectory


def batch(
    trajectories: Sequence[Trajectory],
    advantage: Floats,
    numbers: Sequence[int],
    config: TrainConfig,
    reduction: str = "token",
    rule: Rule | None = None,
    ranks: int = 1,
    masked: Collection[str] = (),
) -> tuple[list[Row], Counter[str]]:
    """Merge, weigh and pack the trajectories numbered `numbers`; `advantage` is indexed by those numbers.

    eligible tokens = trained + dropped, by reason. With a `rule`, the environment's tokens that it chooses echo. For
    several data-parallel ranks `rows.balance` deals the rows out. What agents named in `masked` sampled is not trained.
    """
    counts = Counter({"dropped/sampled_twice": 0, "dropped/no_signal": 0})
    counts["tokens_eligible"] = sum(trajectories[i].sampled_tokens for i in numbers)
    trees: list[Tree] = []
    failed = {i for i in numbers if trajectories[i].error is not None}
    kept = [i for i in numbers if i not in failed or (rule and rule.config.on_error == "keep")]
    counts["dropped/failed"] = sum(trajectories[i].sampled_tokens for i in failed)
    choice = choose(trajectories, numbers, rule) if rule else None
    for members in _shared(trajectories, kept, config.share):
        sampled = sum(trajectories[i].sampled_tokens for i in members if i not in failed)
        merged = [_without(tree, failed) for tree in merge([trajectories[i] for i in members], members)]
        counts["dropped/sampled_twice"] += sampled - sum(len(t.entries) for t in merged)
        for tree in merged:
            if choice:
                tree, replaced = attach(tree, choice)
                counts["dropped/echoed"] += replaced
            if masked:
                tree, silenced = _masked(tree, trajectories, masked)
                counts["dropped/masked"] += silenced
            weighed, silent = weigh(tree, advantage)
            counts["dropped/no_signal"] += silent
            trees.append(weighed)
    counts.update(_turns([trajectories[i] for i in numbers]))
    rows, cut = pack(trees, config.row_tokens, ranks)
    reduce(rows, reduction)
    if choice and rule:
        normalize(rows, choice.lengths, rule.config.normalization)
        counts.update(_echoed(trees, rows, choice, rule))
    counts.update(cut)
    counts["branches"] = sum(t.branches for t in trees)
    counts["tokens_distinct"] = sum(len(t) for t in trees)
    counts["tokens_forwarded"] = sum(len(r) for r in rows)
    counts["tokens_trained"] = sum(len(r.entries) for r in rows)
    return rows, counts


def _without(tree: Tree, failed: Collection[int]) -> Tree:
    """The tree without what failed trajectories sampled."""
    kept = ~np.isin(tree.entries.trajectory, [*failed])
    return tree if kept.all() else replace(tree, entries=tree.entries.take(kept))


def _masked(tree: Tree, trajectories: Sequence[Trajectory], agents: Collection[str]) -> tuple[Tree, int]:
    """The tree without what some agents sampled, and how many entries that were."""
    e = tree.entries
    whose = [trajectories[t].turns[n].agent for t, n in zip(e.trajectory.tolist(), e.turn.tolist(), strict=True)]
    kept = ~np.isin(np.array(whose, np.str_), [*agents])
    return replace(tree, entries=e.take(kept)), int((~kept).sum())


def _echoed(trees: Sequence[Tree], rows: Sequence[Row], choice: Choice, rule: Rule) -> Counter[str]:
    """Tokens that echo, by role and tool, and those that do not, by reason."""
    found = Counter({f"echo/tokens/{role}": 0 for role in rule.config.roles})
    for row in rows:
        found.update({f"echo/tokens/{name}": int(mask.sum()) for name, mask in row.echo.named().items()})
    found.update(choice.dropped)
    found[Why.OVER_BUDGET.key] += sum(len(t.echo) for t in trees) - sum(len(r.echo) for r in rows)
    return found


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
