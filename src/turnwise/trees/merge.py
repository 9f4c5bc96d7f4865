"""Turns of one or more trajectories to token trees: shared prefixes stored once, every sampled token kept.

Each turn's prompt + completion descends along the tokens that stand to the deepest match and branches off there. A
token just before which an event struck is another than the same token without it. A tree is laid out depth first, so
that `visible_until` is one number a token: the end of the branch it belongs to, or the event that took it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turnwise.kv.columns import visible_until
from turnwise.trees.check import check, refuse_negative
from turnwise.trees.legs import Leg, legs, settled
from turnwise.types import Echo, Entries, Event, Ids, Strike, Support, Trajectory, Turn, TurnPath, shared


@dataclass(frozen=True, slots=True)
class Tree:
    """Tokens of one root, depth first, with the entries and echo that point at them and all paths. Arrays [N].

    `branch_ends` holds where the branch of each token ends; None where no event struck and `visible_until` says it.
    """

    ids: Ids
    positions: Ids
    visible_until: Ids
    entries: Entries
    branches: int
    turns: tuple[TurnPath, ...]
    echo: Echo = field(default_factory=Echo.none)
    branch_ends: Ids | None = None
    strikes: tuple[Strike, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ends(self) -> Ids:
        """Where the branch of each token ends, whatever struck it."""
        return self.visible_until if self.branch_ends is None else self.branch_ends


@dataclass(slots=True, eq=False)
class _Branch:
    """Tokens [start, end) of the builder's flat store, continued by `children`, keyed by their first token."""

    start: int
    end: int
    children: dict[int, _Branch] = field(default_factory=dict)


@dataclass(slots=True)
class _Sampled:
    """One leg of a turn: where its last token and what was sampled in it, as `said` counts the completion, lie."""

    last: int
    at: Ids
    said: NDArray[np.intp]
    turn: Turn
    trajectory: int
    index: int
    first: int
    again: int


def merge(trajectories: Sequence[Trajectory], numbers: Sequence[int] | None = None) -> list[Tree]:
    """One tree a distinct first token; `numbers` are what `entries.trajectory` says, 0, 1, ... by default.

    Turns (reads 1 2, writes 3) and (reads 1 2 3 4, writes 5) give ids [1, 2, 3, 4, 5], entries at [2, 4];
    a third turn that reads 1 2 9 and writes 6 branches off after 2: ids [1, 2, 3, 4, 5, 9, 6], source of 6 at 5.
    """
    check(trajectories)
    build = _Builder()
    for number, trajectory in zip(numbers or range(len(trajectories)), trajectories, strict=True):
        events = settled(trajectory.turns)
        for index, turn in enumerate(trajectory.turns):
            for leg in legs(turn, events[index], f"trajectory {number}, turn {index}"):
                path = build.add(leg)
                said = _said(turn, leg)
                at = _tail(path, int(said[1] - said[0]))
                kept = np.arange(*said) if turn.injected is None else _drawn(turn.injected, *said)
                build.sampled.append(
                    _Sampled(path[-1][1] - 1, at[kept - said[0]], kept, turn, number, index, leg.first, leg.again)
                )
    if (build.store[: build.size] < 0).any():
        refuse_negative(trajectories)
    return build.trees()


def _said(turn: Turn, leg: Leg) -> tuple[int, int]:
    """Which of the completion's tokens were drawn in a leg: with 4 read, 3 written and a leg of tokens 5, 6: 2 to 3."""
    prompt, begin = len(turn.prompt_ids), leg.first + int(leg.first > 0)
    end = leg.first + len(leg.ids) - leg.again
    return max(begin - prompt, 0), max(end - prompt, 0)


def _drawn(injected: NDArray[np.bool_], start: int, end: int) -> NDArray[np.intp]:
    """Those of [start, end) that nobody injected."""
    return start + np.flatnonzero(~injected[start:end])


def _tail(path: Sequence[tuple[int, int]], length: int) -> Ids:
    """The last indices of a path: of (0, 3), (7, 9) the last three are 2, 7, 8."""
    start, end = path[-1]
    if length <= end - start:
        return np.arange(end - length, end, dtype=np.int32)
    return np.concatenate([np.arange(a, b, dtype=np.int32) for a, b in path])[-length:]


class _Builder:
    """A radix tree over a flat store that only grows, so that a token keeps its index when its branch is split.

    What is stored is a token's id and, above 32 bits, the number of what struck just before it.
    """

    def __init__(self) -> None:
        self.store = np.zeros(1024, np.int64)
        self.size = 0
        self.struck: dict[tuple[Event, ...], int] = {(): 0}
        self.root = _Branch(0, 0)
        self.sampled: list[_Sampled] = []

    def add(self, leg: Leg) -> list[tuple[int, int]]:
        """Descend, branch off what is new, and return where in the store the leg stands, as stretches [start, end)."""
        path: list[tuple[int, int]] = []
        branch, done, ids = self.root, 0, self._codes(leg)
        while done < len(ids):
            child = branch.children.get(int(ids[done]))
            if child is None:
                path.append(self._append(branch, ids[done:]))
                break
            same = self._match(child, ids[done:])
            path.append((child.start, child.start + same))
            done += same
            if done < len(ids) and same < child.end - child.start:
                self._split(child, same)
            branch = child
        return path

    def _codes(self, leg: Leg) -> NDArray[np.int64]:
        """What a leg's tokens are stored as."""
        codes = leg.ids.astype(np.int64)
        for at in sorted({e.at for e in leg.events}):
            what = tuple(e for e in leg.events if e.at == at)
            codes[at] |= self.struck.setdefault(what, len(self.struck)) << 32
        return codes

    def _match(self, branch: _Branch, ids: NDArray[np.int64]) -> int:
        """How many leading tokens agree."""
        return shared(self.store[branch.start : branch.end], ids)

    def _append(self, branch: _Branch, ids: NDArray[np.int64]) -> tuple[int, int]:
        """Store new tokens: the last leaf grows, any other branch gets a child."""
        start, end = self.size, self.size + len(ids)
        if end > len(self.store):
            self.store = np.concatenate([self.store, np.zeros(max(end, len(self.store)), np.int64)])
        self.store[start:end] = ids
        self.size = end
        if branch is not self.root and not branch.children and branch.end == start:
            branch.end = end
        else:
            branch.children[int(ids[0])] = _Branch(start, end)
        return start, end

    def _split(self, branch: _Branch, at: int) -> None:
        """Cut a branch after `at` tokens; what follows becomes its only child."""
        lower = _Branch(branch.start + at, branch.end, branch.children)
        branch.children = {int(self.store[lower.start]): lower}
        branch.end = lower.start

    def trees(self) -> list[Tree]:
        """Lay out each root and give it the entries that lie in it."""
        entries = _entries(self.sampled)
        once = _once(entries, self.size)
        return [self._tree(root, entries, once) for root in self.root.children.values()]

    def _tree(self, root: _Branch, entries: Entries, once: NDArray[np.intp]) -> Tree:
        if len(self.struck) > 1:
            _last(root, np.append(0, np.cumsum(self.store[: self.size] >> 32 > 0)))
        layout = _layout(root)
        place = np.full(self.size, -1, np.int32)
        place[layout.order] = np.arange(len(layout.order), dtype=np.int32)
        rows = place[entries.at[once]]
        here = rows >= 0
        order = np.argsort(layout.parents[rows[here]], kind="stable")
        mine = entries.take(once[here][order])
        mine.at[:] = rows[here][order]
        mine.source[:] = layout.parents[mine.at]
        codes = self.store[layout.order]
        turns, strikes = tuple(_paths(layout, place, self.sampled)), self._strikes(codes, layout.ends)
        return Tree(
            (codes & 0xFFFFFFFF).astype(np.int32),
            layout.positions,
            visible_until(layout.ends, strikes),
            mine,
            layout.branches,
            turns,
            branch_ends=layout.ends if strikes else None,
            strikes=strikes,
        )

    def _strikes(self, codes: NDArray[np.int64], ends: Ids) -> tuple[Strike, ...]:
        """Where a tree's events strike."""
        events = list(self.struck)
        rows = np.flatnonzero(codes >> 32).tolist() if len(events) > 1 else []
        return tuple(Strike(row, int(ends[row]), e) for row in rows for e in events[codes[row] >> 32])


def _last(root: _Branch, struck: NDArray[np.intp]) -> None:
    """Put the children of every fork in the order of how often they are struck, so that fewer columns come back.

    `struck` [size + 1] counts the struck tokens before each.
    """
    below: list[_Branch] = [root]
    for branch in below:
        below.extend(branch.children.values())
    times: dict[int, int] = {}
    for branch in reversed(below):
        inside = int(struck[branch.end] - struck[branch.start])
        times[id(branch)] = inside + sum(times[id(child)] for child in branch.children.values())
        ordered = sorted(branch.children.items(), key=lambda item: times[id(item[1])])
        branch.children = dict(ordered)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Of a tree laid out depth first: which stored token stands at a row, its depth, parent row and branch's end.

    `firsts` are the first rows of branches, ascending, and `above` the number of each one's parent, -1 for the root.
    """

    order: Ids
    positions: Ids
    parents: Ids
    ends: Ids
    branches: int
    firsts: Ids
    above: Ids


def _layout(root: _Branch) -> _Layout:
    """P with branches A and B of two tokens each: rows P P A A B B, ends 6 6 4 4 6 6."""
    placed: list[tuple[_Branch, int, int, int]] = []  # branch, number of its parent in this list, first row, depth
    todo, row = [(root, -1, 0)], 0
    while todo:
        branch, parent, depth = todo.pop()
        placed.append((branch, parent, row, depth))
        length = branch.end - branch.start
        row += length
        todo.extend((child, len(placed) - 1, depth + length) for child in reversed(branch.children.values()))
    ends = [first + b.end - b.start for b, _, first, _ in placed]
    borders = list(ends)
    for number in range(len(placed) - 1, 0, -1):
        parent = placed[number][1]
        borders[parent] = max(borders[parent], borders[number])
    parents = np.arange(-1, row - 1, dtype=np.int32)
    for _, parent, first, _ in placed[1:]:
        parents[first] = ends[parent] - 1
    return _Layout(
        _joined([np.arange(b.start, b.end) for b, *_ in placed]),
        _joined([np.arange(depth, depth + b.end - b.start) for b, _, _, depth in placed]),
        parents,
        _joined([np.full(b.end - b.start, end) for (b, *_), end in zip(placed, borders, strict=True)]),
        # A leaf that others were stored behind grew by a child; the two are one branch.
        sum(len(b.children) != 1 for b, *_ in placed),
        np.array([first for _, _, first, _ in placed], np.int32),
        np.array([parent for _, parent, _, _ in placed], np.int32),
    )


def _paths(layout: _Layout, place: Ids, sampled: Sequence[_Sampled]) -> Iterator[TurnPath]:
    """Of every turn of this root, the stretches of rows from the root to its last token, climbed branch by branch."""
    lasts = place[[s.last for s in sampled]]
    ends = np.searchsorted(layout.firsts, lasts, side="right") - 1
    firsts, above, parents = layout.firsts.tolist(), layout.above.tolist(), layout.parents[layout.firsts].tolist()
    for s, last, branch in zip(sampled, lasts.tolist(), ends.tolist(), strict=True):
        spans = []
        while last >= 0:
            spans.append((firsts[branch], last + 1))
            branch, last = above[branch], parents[branch]
        if spans:
            yield TurnPath(s.trajectory, s.index, np.array(spans[::-1], np.int32), s.first, s.again)


def _joined(parts: Sequence[np.ndarray]) -> Ids:
    return np.concatenate([*parts, np.zeros(0, np.int32)]).astype(np.int32)


def _entries(sampled: Sequence[_Sampled]) -> Entries:
    """One entry for every token of every turn, in the order they were sampled; `at` points into the store."""
    turns = [s.turn for s in sampled]
    lengths = [len(s.at) for s in sampled]

    def spread(values: Sequence[float], dtype: type) -> np.ndarray:
        return np.repeat(np.array(values, dtype), lengths)

    at = _joined([s.at for s in sampled])
    floats = np.zeros(len(at), np.float32)
    return Entries(
        at=at,
        source=at - 1,
        advantage=floats.copy(),
        sampler_logp=np.concatenate([floats[:0], *(s.turn.logprobs[s.said] for s in sampled)]),
        temperature=spread([t.temperature for t in turns], np.float32),
        weight=floats + 1,
        version=_joined([s.turn.policy_versions[s.said] for s in sampled]),
        trajectory=spread([s.trajectory for s in sampled], np.int32),
        turn=spread([s.index for s in sampled], np.int32),
        support=_supports(sampled, len(at)),
    )


def _supports(sampled: Sequence[_Sampled], tokens: int) -> Support:
    if all(s.turn.support is None for s in sampled):
        return Support.whole(tokens)
    return Support.join([_support(s) for s in sampled])


def _support(s: _Sampled) -> Support:
    if s.turn.support is None:
        return Support.whole(len(s.said))
    return s.turn.support if len(s.said) == len(s.turn.completion_ids) else s.turn.support.take(s.said)


def _once(entries: Entries, size: int) -> NDArray[np.intp]:
    """What a trajectory sampled twice over the same prefix counts once, by its first turn."""
    place = entries.trajectory.astype(np.int64) * size + entries.at
    if (np.diff(place) > 0).all():
        return np.arange(len(place))
    return np.sort(np.unique(place, return_index=True)[1])
