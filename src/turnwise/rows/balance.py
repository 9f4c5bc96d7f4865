"""Rows to data-parallel ranks, so that no rank waits long for another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.rows.cost import COST, Cost
from turnwise.rows.pack import Row


def balance(rows: Sequence[Row], ranks: int, cost: Cost = COST) -> list[list[Row]]:
    """A list of rows for each rank, costliest first: dealt to whoever has least, then exchanged while that helps.

    Costs 5, 4, 3, 3, 3 on two ranks: 5 4 and 3 3 3. Ranks may differ in how many rows they have; `spread` counts that.
    """
    costs = cost.each(rows)
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = np.zeros(ranks)
    for i in np.argsort(-costs, kind="stable").tolist():
        least = min(range(ranks), key=lambda r: (loads[r], len(shares[r])))
        shares[least].append(i)
        loads[least] += costs[i]
    while _exchange(shares, loads, costs):
        pass
    return [[rows[i] for i in sorted(share, key=lambda i: (-costs[i], i))] for share in shares]


def _exchange(shares: list[list[int]], loads: NDArray[np.float64], costs: NDArray[np.float64]) -> bool:
    """A row from the most loaded rank to the least, or a swap, whichever levels them best; False if none does."""
    most, least = int(loads.argmax()), int(loads.argmin())
    gap = loads[most] - loads[least]
    theirs = np.append(costs[shares[least]], 0.0)  # against nothing it is a gift
    moved = costs[shares[most]][:, None] - theirs[None]
    useful = (moved > 1e-9 * loads[most]) & (moved < gap * (1 - 1e-9))
    if not useful.any():
        return False
    far = np.where(useful, np.abs(moved - gap / 2), np.inf)
    give, take = np.unravel_index(int(far.argmin()), far.shape)
    shares[least].append(shares[most].pop(int(give)))
    if take < len(theirs) - 1:
        shares[most].append(shares[least].pop(int(take)))
    loads[[most, least]] += [-moved[give, take], moved[give, take]]
    return True


def spread(shares: Sequence[Sequence[Row]], cost: Cost = COST) -> dict[str, float]:
    """How even ranks are: the costliest over the mean, and for how many rows others work while some have none left."""
    loads = np.array([cost.each(share).sum() for share in shares])
    longest = max(map(len, shares))
    return {
        "rank_cost": float(loads.max() / loads.mean()) if loads.any() else 1.0,
        "rows_empty": float(sum(longest - len(share) for share in shares)),
    }
