"""A tree over the budget to trees within it: at branch borders first, and on the right only what fits in no row.

Depth first, a tree is a chain of stretches, each from a fork down to a leaf. Neighbouring stretches go into one piece
as long as it fits; a piece begins with a copy of the path its first stretch hangs on. A turn belongs to the piece whose
stretches hold its last token, with all its entries, since some losses read a turn as a whole. So entries are lost only
where a single path is longer than the budget.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnwise.kv.columns import visible_until
from turnwise.trees import Tree
from turnwise.types import Echo, Entries, Ids, Strike, TurnPath

LOST = "dropped/over_budget/right"
SPLIT = "over_budget/trees_split"
REPEATED = "over_budget/tokens_repeated"


def cut(tree: Tree, budget: int) -> tuple[list[Tree], Counter[str]]:
    """Pieces in order, and what it took: entries lost on the right, trees split at branches, tokens repeated.

    P P A A B B in rows of 4 is P P A A and P P B B: nothing lost, 2 tokens repeated. In rows of 3, P P A and P P B:
    an entry at the second A or B is lost.
    """
    if len(tree) <= budget:
        return [tree], Counter()
    borders = _borders(tree.positions, budget)
    rows = [_rows(tree, first, end, budget) for first, end in borders]
    found = [_piece(tree, kept, first, end) for kept, (first, end) in zip(rows, borders, strict=True)]
    counts = Counter({LOST: len(tree.entries) - sum(len(t.entries) for t in found)})
    counts[SPLIT] = int(len(found) > 1)
    counts[REPEATED] = sum(int((kept < first).sum()) for kept, (first, _) in zip(rows, borders, strict=True))
    return found, counts


def _borders(positions: Ids, budget: int) -> list[tuple[int, int]]:
    """Stretches [first, end) of the tree's rows that make one piece each."""
    starts = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
    found: list[tuple[int, int]] = []
    size = budget
    for start, end in pairwise(starts):
        above = min(int(positions[start]), budget)
        own = min(above + end - start, budget) - above
        if found and size + own <= budget:
            found[-1], size = (found[-1][0], end), size + own
        else:
            found.append((start, end))
            size = above + own
    return found


def _rows(tree: Tree, first: int, end: int, budget: int) -> Ids:
    """The tree's rows a piece is made of: the path to `first`, and its own, as deep as the budget.

    What an event took belongs to the path: slots were made of it.
    """
    rows = np.concatenate([np.flatnonzero(tree.ends[:first] > first), np.arange(first, end)]).astype(np.int32)
    return rows[tree.positions[rows] < budget]


def _piece(tree: Tree, rows: Ids, first: int, end: int) -> Tree:
    """The tree that `rows` make, with the turns whose last token lies in [first, end)."""
    turns = [t for t in tree.turns if first < t.spans[-1, 1] <= end]
    owned = _turn([t.trajectory for t in turns], [t.turn for t in turns])
    mine = tree.entries.take(_owned(tree.entries, owned, rows))
    echo = tree.echo.take(_owned(tree.echo, owned, rows))
    positions, ends = tree.positions[rows], _placed(rows, tree.ends[rows])
    strikes = tuple(_struck(s, rows) for s in tree.strikes if s.at in rows)
    return Tree(
        tree.ids[rows],
        positions,
        visible_until(ends, strikes),
        replace(mine, at=_placed(rows, mine.at), source=_placed(rows, mine.source)),
        _branches(positions, ends),
        tuple(_moved(t, rows) for t in turns),
        replace(echo, at=_placed(rows, echo.at), source=_placed(rows, echo.source)),
        ends if strikes else None,
        strikes,
    )


def _struck(strike: Strike, rows: Ids) -> Strike:
    """A strike among `rows`."""
    at, until = _placed(rows, np.array([strike.at, strike.until])).tolist()
    return Strike(at, until, strike.event)


def _owned(x: Entries | Echo, turns: NDArray[np.int64], rows: Ids) -> NDArray[np.bool_]:
    """Which tokens belong to these turns and lie among the rows."""
    return np.isin(_turn(x.trajectory, x.turn), turns) & np.isin(x.at, rows)


def _turn(trajectory: ArrayLike, turn: ArrayLike) -> NDArray[np.int64]:
    """One number for a turn of a trajectory."""
    return np.asarray(trajectory, np.int64) << 32 | np.asarray(turn, np.int64)


def _placed(rows: Ids, wanted: Ids) -> Ids:
    return np.searchsorted(rows, wanted).astype(np.int32)


def _moved(turn: TurnPath, rows: Ids) -> TurnPath:
    """A turn's path among `rows`; what of it is cut lies at its end."""
    spans = _placed(rows, turn.spans.ravel()).reshape(-1, 2)
    return replace(turn, spans=spans[spans[:, 0] < spans[:, 1]])


def _branches(positions: Ids, until: Ids) -> int:
    """Stretches between forks: a token that does not continue the one before it is a fork's child; so is the eldest."""
    opened = np.flatnonzero(np.diff(positions) != 1) + 1
    forks = {int(np.flatnonzero(until[:start] > start)[-1]) for start in opened}
    return 1 + len(opened) + len(forks)
