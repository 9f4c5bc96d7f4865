"""Trajectories to the tokens that echo: which turn reads each of them, once in a group, and why the others do not.

A token is a place in the group's tree, so what siblings or later turns read again is the same token. A message that a
turn reads again in another place, because its prefix broke, has echoed where it was read first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from turnwise.config.echo import EchoConfig
from turnwise.trees.allow import Allow, allow
from turnwise.trees.merge import Tree, merge
from turnwise.trees.why import REASONS, Why, Whys, reading
from turnwise.types import Echo, Floats, Ids, Names, Trajectory, Turn, TurnPath

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rule:
    """What was configured, and the filter found."""

    config: EchoConfig
    allow: Allow | None = None

    @staticmethod
    def of(config: EchoConfig) -> Rule:
        return Rule(config, allow(config.filter) if config.filter else None)


@dataclass(frozen=True, slots=True)
class Picked:
    """Tokens of one turn's prompt + completion that echo here, [K]; and the sampled ones that are not RL's any more."""

    index: Ids
    alpha: Floats
    role: Names
    tool: Names
    replaced: Ids


@dataclass(slots=True)
class Choice:
    """What echoes, by (trajectory, turn). `lengths` holds each rollout's tokens, echo tokens and sampled tokens."""

    picked: dict[tuple[int, int], Picked] = field(default_factory=dict)
    lengths: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys((why.key for why in REASONS), 0)))

    def count(self, whys: Whys) -> None:
        """Add up why tokens do not echo."""
        for why, n in zip(*np.unique(whys, return_counts=True), strict=True):
            if why in REASONS:
                self.dropped[Why(why).key] += int(n)


def choose(trajectories: Sequence[Trajectory], numbers: Sequence[int], rule: Rule) -> Choice:
    """Choose among the trajectories numbered `numbers`, group by group, however they will be laid out.

    Two siblings read system S and task T and are answered E and F: S T E echo in the first, F in the second.
    """
    choice = Choice()
    groups: dict[int, list[int]] = {}
    for n in sorted(numbers):
        if trajectories[n].error is None or rule.config.on_error == "keep":
            groups.setdefault(trajectories[n].group, []).append(n)
        else:
            choice.dropped[Why.FAILED.key] += _failed(trajectories[n], rule)
    for members in groups.values():
        _choose_in_group([trajectories[n] for n in members], members, rule, choice)
    return choice


def attach(tree: Tree, choice: Choice) -> tuple[Tree, int]:
    """The tree with its echo; assistant tokens that echo have no entry any more. Also how many entries that took."""
    parts, replaced = [Echo.none()], [np.zeros(0, np.int64)]
    for path in tree.turns:
        picked = choice.picked.get((path.trajectory, path.turn))
        if picked is not None:
            parts.append(_echo(path, picked))
            own = picked.replaced[(picked.replaced >= path.first) & (picked.replaced < path.first + len(path))]
            replaced.append(_who(path.trajectory, path.at[own - path.first]))
    echo, e = Echo.join(parts), tree.entries
    kept = ~np.isin(_who(e.trajectory, e.at), np.concatenate(replaced))
    echo = echo.take(np.argsort(echo.source, kind="stable"))
    return replace(tree, echo=echo, entries=e if kept.all() else e.take(kept)), int((~kept).sum())


def _who(trajectory: Ids | int, at: Ids) -> NDArray[np.int64]:
    return np.int64(trajectory) << 32 | at.astype(np.int64)


def _echo(path: TurnPath, picked: Picked) -> Echo:
    """What echoes on a path; its first token is foretold by none of it."""
    here = (picked.index > path.first) & (picked.index < path.first + len(path))
    at, index = path.at, picked.index[here] - path.first
    whose, of = (np.full(len(index), n, np.int32) for n in (path.trajectory, path.turn))
    return Echo(
        at=at[index],
        source=at[index - 1],
        alpha=picked.alpha[here],
        weight=picked.alpha[here].copy(),
        trajectory=whose,
        turn=of,
        role=picked.role[here],
        tool=picked.tool[here],
    )


def _failed(trajectory: Trajectory, rule: Rule) -> int:
    """How many tokens would have echoed, had the episode not failed. No filter is asked about it."""
    choice = Choice()
    _choose_in_group([trajectory], [0], Rule(rule.config), choice)
    return sum(len(p.index) for p in choice.picked.values())


def _choose_in_group(members: Sequence[Trajectory], numbers: Sequence[int], rule: Rule, choice: Choice) -> None:
    """Tokens are numbered over all trees of the group; the first member that may echo one does."""
    places, total = _places(merge(members, numbers))
    taken = np.zeros(total, np.bool_)
    for number, trajectory in zip(numbers, members, strict=True):
        own = [places[number, index] for index in range(len(trajectory.turns))]
        why, read, news = reading(trajectory, own, total, rule.config, rule.allow)
        echoes = why == Why.ECHOES
        mine = echoes & ~taken
        taken |= mine
        choice.count(why)
        choice.dropped[Why.SHARED.key] += int(echoes.sum() - mine.sum())
        choice.lengths[number] = (int(read.sum()), int(mine.sum()), trajectory.sampled_tokens)
        for index, (turn, place, new) in enumerate(zip(trajectory.turns, own, news, strict=True)):
            here, sampled = new[mine[place[new]]], place[len(turn.prompt_ids) :]
            choice.picked[number, index] = _picked(turn, here, echoes[sampled], rule.config)
            mine[place[here]] = False


def _places(trees: Sequence[Tree]) -> tuple[dict[tuple[int, int], Ids], int]:
    """For each turn, the number of each of its tokens among those of all trees; and how many there are."""
    starts = np.cumsum([0, *map(len, trees)])
    places: dict[tuple[int, int], Ids] = {}
    found = [
        (path, path.at + np.int32(start)) for tree, start in zip(trees, starts, strict=False) for path in tree.turns
    ]
    for path, at in sorted(found, key=lambda one: one[0].first):
        before = places.get((path.trajectory, path.turn), at[:0])
        places[path.trajectory, path.turn] = np.concatenate([before, at[len(before) - path.first :]])
    return places, int(starts[-1])


def _picked(turn: Turn, index: Ids, sampled: Bools, config: EchoConfig) -> Picked:
    """Who wrote the tokens at `index`, and what they weigh; `sampled` tokens that echo anywhere leave RL."""
    a, prompt = turn.attribution, len(turn.prompt_ids)
    assert a is not None, "checked before anything was picked"
    writer = np.append(a.message, np.full(len(turn.completion_ids), len(a.roles)))[index]
    roles, tools = [*a.roles, "assistant"], [*(tool or "" for tool in a.tools), ""]
    alphas = [config.roles[r].alpha if r in config.roles else 0.0 for r in roles]
    named = [tool if role == "tool" else "" for role, tool in zip(roles, tools, strict=True)]
    replaced = prompt + np.flatnonzero(sampled) if config.assistant else np.zeros(0)
    return Picked(
        index=index,
        alpha=np.array(alphas, np.float32)[writer],
        role=np.array(roles)[writer],
        tool=np.array(named)[writer],
        replaced=replaced.astype(np.int32),
    )
