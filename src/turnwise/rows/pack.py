"""Trees to rows of a fixed token budget, best-fit decreasing by cost; what does not fit is cut and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from turnwise.rows.cost import COST, Cost
from turnwise.rows.cut import LOST, REPEATED, SPLIT, cut
from turnwise.trees import Tree
from turnwise.types import Echo, Entries, Floats, Ids, Strike, TurnPath


@dataclass(frozen=True, slots=True)
class Row:
    """What one forward pass reads: trees one after the other. Arrays [N]; `entries`, `turns`, `echo` point into it.

    `branch_ends` holds where the branch of each token ends; None where no event struck and `visible_until` says it.
    """

    ids: Ids
    positions: Ids
    visible_until: Ids
    entries: Entries
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

    @property
    def struck(self) -> NDArray[np.bool_]:
        """Which tokens were computed after an event."""
        found = np.zeros(len(self), np.bool_)
        for strike in self.strikes:
            found[strike.at : strike.until] = True
        return found

    def whole(self) -> Row:
        """The same text as nothing had ever been taken from its cache."""
        return replace(self, visible_until=self.ends, branch_ends=None, strikes=())


def weigh(tree: Tree, advantage: Floats) -> tuple[Tree, int]:
    """Give each entry its trajectory's or turn's advantage; without one (NaN) it is dropped. Also how many were."""
    e = tree.entries
    values = advantage[e.trajectory] if advantage.ndim == 1 else advantage[e.trajectory, e.turn]
    kept = ~np.isnan(values)
    entries = e.take(kept)
    entries.advantage[:] = values[kept]
    return replace(tree, entries=entries), int((~kept).sum())


def pack(
    trees: Sequence[Tree],
    budget: int,
    ranks: int = 1,
    cost: Cost = COST,
) -> tuple[list[Row], Counter[str]]:
    """Costliest trees first, each into the fullest row that still takes it. Trees that teach nothing are left out.

    Lengths 5, 3, 3, 2 in rows of 6: (5), (3, 3), (2). For several ranks there are as many rows for each, and they are
    filled evenly by cost: for two ranks (5), (2), (3), (3). Returns rows and what was cut for the budget, by reason.
    """
    counts = Counter({LOST: 0, SPLIT: 0, REPEATED: 0})
    fitting: list[Tree] = []
    for tree in filter(_teaches, trees):
        pieces, cuts = cut(tree, budget)
        counts.update(cuts)
        fitting += filter(_teaches, pieces)
    fitting = [fitting[i] for i in np.argsort(-cost.each(fitting), kind="stable")]
    bins = _filled(fitting, budget)
    if ranks > 1 and fitting:
        bins = _levelled(fitting, budget, len(bins), ranks, cost)
    return [_row(b) for b in bins], counts


def _filled(trees: Sequence[Tree], budget: int) -> list[list[Tree]]:
    """As few rows as best fit finds."""
    bins: list[list[Tree]] = []
    room: list[int] = []
    for tree in trees:
        best = min((i for i in range(len(bins)) if room[i] >= len(tree)), key=room.__getitem__, default=None)
        if best is None:
            bins.append([])
            room.append(budget)
            best = len(bins) - 1
        bins[best].append(tree)
        room[best] -= len(tree)
    return bins


def _levelled(trees: Sequence[Tree], budget: int, least: int, ranks: int, cost: Cost) -> list[list[Tree]]:
    """The fewest rows, `least` or more and as many for each rank, that take all trees, each into the cheapest row.

    With as many rows as trees that always goes; rows that stay empty are left out.
    """
    count = -(-least // ranks) * ranks
    while True:
        bins: list[list[Tree]] = [[] for _ in range(count)]
        room, loads = np.full(count, budget), np.zeros(count)
        for tree in trees:
            cheapest = int(np.where(room >= len(tree), loads, np.inf).argmin())
            if room[cheapest] < len(tree):
                break
            bins[cheapest].append(tree)
            room[cheapest] -= len(tree)
            loads[cheapest] += cost(tree)
        else:
            return [b for b in bins if b]
        count += ranks


def _teaches(tree: Tree) -> bool:
    """Whether any loss points into it."""
    return bool(len(tree.entries) or len(tree.echo))


def _row(trees: Sequence[Tree]) -> Row:
    starts = np.cumsum([0, *(len(t) for t in trees)]).astype(np.int32)
    pairs = list(zip(trees, starts, strict=False))
    return Row(
        np.concatenate([t.ids for t in trees]),
        np.concatenate([t.positions for t in trees]),
        np.concatenate([t.visible_until + s for t, s in pairs]).astype(np.int32),
        Entries.join([replace(t.entries, at=t.entries.at + s, source=t.entries.source + s) for t, s in pairs]),
        tuple(turn.moved(int(s)) for t, s in pairs for turn in t.turns),
        Echo.join([t.echo.moved(int(s)) for t, s in pairs]),
        np.concatenate([t.ends + s for t, s in pairs]).astype(np.int32) if any(t.strikes for t in trees) else None,
        tuple(strike.moved(int(s)) for t, s in pairs for strike in t.strikes),
    )
