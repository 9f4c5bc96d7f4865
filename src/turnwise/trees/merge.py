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
from turnwise.trees.layout import Branch, Layout, in_order, layout
from turnwise.trees.legs import Leg, legs, settled
from turnwise.trees.sampled import Sampled, entries_of, once
from turnwise.types import Echo, Entries, Event, Ids, Strike, Trajectory, TurnPath, shared


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
                build.sampled.append(Sampled.of(path, leg, turn, number, index))
    if (build.store[: build.size] < 0).any():
        refuse_negative(trajectories)
    return build.trees()


class _Builder:
    """A radix tree over a flat store that only grows, so that a token keeps its index when its branch is split.

    What is stored is a token's id and, above 32 bits, the number of what struck just before it.
    """

    def __init__(self) -> None:
        self.store = np.zeros(1024, np.int64)
        self.size = 0
        self.struck: dict[tuple[Event, ...], int] = {(): 0}
        self.root = Branch(0, 0)
        self.sampled: list[Sampled] = []

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

    def _match(self, branch: Branch, ids: NDArray[np.int64]) -> int:
        """How many leading tokens agree."""
        return shared(self.store[branch.start : branch.end], ids)

    def _append(self, branch: Branch, ids: NDArray[np.int64]) -> tuple[int, int]:
        """Store new tokens: the last leaf grows, any other branch gets a child."""
        start, end = self.size, self.size + len(ids)
        if end > len(self.store):
            self.store = np.concatenate([self.store, np.zeros(max(end, len(self.store)), np.int64)])
        self.store[start:end] = ids
        self.size = end
        if branch is not self.root and not branch.children and branch.end == start:
            branch.end = end
        else:
            branch.children[int(ids[0])] = Branch(start, end)
        return start, end

    def _split(self, branch: Branch, at: int) -> None:
        """Cut a branch after `at` tokens; what follows becomes its only child."""
        lower = Branch(branch.start + at, branch.end, branch.children)
        branch.children = {int(self.store[lower.start]): lower}
        branch.end = lower.start

    def trees(self) -> list[Tree]:
        """Lay out each root and give it the entries that lie in it."""
        entries = entries_of(self.sampled)
        kept = once(entries, self.size)
        return [self._tree(root, entries, kept) for root in self.root.children.values()]

    def _tree(self, root: Branch, entries: Entries, kept: NDArray[np.intp]) -> Tree:
        if len(self.struck) > 1:
            in_order(root, np.append(0, np.cumsum(self.store[: self.size] >> 32 > 0)))
        laid = layout(root)
        place = np.full(self.size, -1, np.int32)
        place[laid.order] = np.arange(len(laid.order), dtype=np.int32)
        rows = place[entries.at[kept]]
        here = rows >= 0
        order = np.argsort(laid.parents[rows[here]], kind="stable")
        mine = entries.take(kept[here][order])
        mine.at[:] = rows[here][order]
        mine.source[:] = laid.parents[mine.at]
        codes = self.store[laid.order]
        turns, strikes = tuple(_paths(laid, place, self.sampled)), self._strikes(codes, laid.ends)
        return Tree(
            (codes & 0xFFFFFFFF).astype(np.int32),
            laid.positions,
            visible_until(laid.ends, strikes),
            mine,
            laid.branches,
            turns,
            branch_ends=laid.ends if strikes else None,
            strikes=strikes,
        )

    def _strikes(self, codes: NDArray[np.int64], ends: Ids) -> tuple[Strike, ...]:
        """Where a tree's events strike."""
        events = list(self.struck)
        rows = np.flatnonzero(codes >> 32).tolist() if len(events) > 1 else []
        return tuple(Strike(row, int(ends[row]), e) for row in rows for e in events[codes[row] >> 32])


def _paths(laid: Layout, place: Ids, sampled: Sequence[Sampled]) -> Iterator[TurnPath]:
    """Of every turn of this root, the stretches of rows from the root to its last token, climbed branch by branch."""
    lasts = place[[s.last for s in sampled]]
    ends = np.searchsorted(laid.firsts, lasts, side="right") - 1
    firsts, above, parents = laid.firsts.tolist(), laid.above.tolist(), laid.parents[laid.firsts].tolist()
    for s, last, branch in zip(sampled, lasts.tolist(), ends.tolist(), strict=True):
        spans = []
        while last >= 0:
            spans.append((firsts[branch], last + 1))
            branch, last = above[branch], parents[branch]
        if spans:
            yield TurnPath(s.trajectory, s.index, np.array(spans[::-1], np.int32), s.first, s.again)
