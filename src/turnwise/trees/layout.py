"""Branches of a radix tree to rows laid out depth first: which token stands where, and where its branch ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Ids


@dataclass(slots=True, eq=False)
class Branch:
    """Tokens [start, end) of the builder's flat store, continued by `children`, keyed by their first token."""

    start: int
    end: int
    children: dict[int, Branch] = field(default_factory=dict)


def in_order(root: Branch, struck: NDArray[np.intp]) -> None:
    """Put the children of every fork in the order of how often they are struck, so that fewer columns come back.

    `struck` [size + 1] counts the struck tokens before each.
    """
    below: list[Branch] = [root]
    for branch in below:
        below.extend(branch.children.values())
    times: dict[int, int] = {}
    for branch in reversed(below):
        inside = int(struck[branch.end] - struck[branch.start])
        times[id(branch)] = inside + sum(times[id(child)] for child in branch.children.values())
        ordered = sorted(branch.children.items(), key=lambda item: times[id(item[1])])
        branch.children = dict(ordered)


@dataclass(frozen=True, slots=True)
class Layout:
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


def layout(root: Branch) -> Layout:
    """P with branches A and B of two tokens each: rows P P A A B B, ends 6 6 4 4 6 6."""
    placed: list[tuple[Branch, int, int, int]] = []  # branch, number of its parent in this list, first row, depth
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
    return Layout(
        joined([np.arange(b.start, b.end) for b, *_ in placed]),
        joined([np.arange(depth, depth + b.end - b.start) for b, _, _, depth in placed]),
        parents,
        joined([np.full(b.end - b.start, end) for (b, *_), end in zip(placed, borders, strict=True)]),
        # A leaf that others were stored behind grew by a child; the two are one branch.
        sum(len(b.children) != 1 for b, *_ in placed),
        np.array([first for _, _, first, _ in placed], np.int32),
        np.array([parent for _, parent, _, _ in placed], np.int32),
    )


def joined(parts: Sequence[np.ndarray]) -> Ids:
    return np.concatenate([*parts, np.zeros(0, np.int32)]).astype(np.int32)
