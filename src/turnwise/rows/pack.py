"""Trees to rows of a fixed token budget, best-fit decreasing; what does not fit is cut and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.trees import Tree
from turnwise.types import Entries, Floats, Ids, TurnPath


@dataclass(frozen=True, slots=True)
class Row:
    """What one forward pass reads: trees one after the other. Arrays [N]; `entries` and `turns` point into them."""

    ids: Ids
    positions: Ids
    visible_until: Ids
    entries: Entries
    turns: tuple[TurnPath, ...]

    def __len__(self) -> int:
        return len(self.ids)


def weigh(tree: Tree, advantage: Floats) -> tuple[Tree, int]:
    """Give each entry its trajectory's or turn's advantage; without one (NaN) it is dropped. Also how many were."""
    e = tree.entries
    values = advantage[e.trajectory] if advantage.ndim == 1 else advantage[e.trajectory, e.turn]
    kept = ~np.isnan(values)
    entries = e.take(kept)
    entries.advantage[:] = values[kept]
    return replace(tree, entries=entries), int((~kept).sum())


def pack(trees: Sequence[Tree], budget: int) -> tuple[list[Row], Counter[str]]:
    """Largest trees first, each into the fullest row that still takes it. Trees without entries are left out.

    Lengths 5, 3, 3, 2 in rows of 6: (5), (3, 3), (2). Returns rows and how many entries were cut, by reason.
    """
    dropped = Counter({"over_budget": 0})
    bins: list[list[Tree]] = []
    room: list[int] = []
    for tree in sorted((t for t in trees if len(t.entries)), key=len, reverse=True):
        fitting, lost = _fit(tree, budget)
        dropped["over_budget"] += lost
        if not len(fitting.entries):
            continue
        best = min((i for i in range(len(bins)) if room[i] >= len(fitting)), key=room.__getitem__, default=None)
        if best is None:
            bins.append([])
            room.append(budget)
            best = len(bins) - 1
        bins[best].append(fitting)
        room[best] -= len(fitting)
    return [_row(b) for b in bins], dropped


def _fit(tree: Tree, budget: int) -> tuple[Tree, int]:
    """Cut a tree over the budget on the right: depth first, what stays holds all it can see."""
    if len(tree) <= budget:
        return tree, 0
    kept = tree.entries.at < budget
    shorter = Tree(
        tree.ids[:budget],
        tree.positions[:budget],
        np.minimum(tree.visible_until[:budget], budget),
        tree.entries.take(kept),
        tree.branches,
        tuple(turn.until(budget) for turn in tree.turns),
    )
    return shorter, int((~kept).sum())


def _row(trees: Sequence[Tree]) -> Row:
    starts = np.cumsum([0, *(len(t) for t in trees)]).astype(np.int32)
    pairs = list(zip(trees, starts, strict=False))
    return Row(
        np.concatenate([t.ids for t in trees]),
        np.concatenate([t.positions for t in trees]),
        np.concatenate([t.visible_until + s for t, s in pairs]).astype(np.int32),
        Entries.join([replace(t.entries, at=t.entries.at + s, source=t.entries.source + s) for t, s in pairs]),
        tuple(turn.moved(int(s)) for t, s in pairs for turn in t.turns),
    )
