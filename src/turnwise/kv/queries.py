"""Where reference queries come from: what the future will probably ask of the region.

A source takes what is stored of one layer, or of several, and how many are wanted at least, and returns them pooled
over the query heads of a group. Shapes: K key/value heads, G query heads of a group, M visible columns, N queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from turnwise.kv.fit import Region
from turnwise.kv.rotary import turn


@dataclass(frozen=True, slots=True)
class Stored:
    """What there is to draw on: queries and keys of the visible columns as they were computed, rotated to `position_M`.

    Earlier slots have keys, but no query (`asked_M` is False). `next` is the position of the token to come, `again`
    the queries of a second reading of the region, for `repeat`.
    """

    q_KGMD: Tensor
    k_KMD: Tensor
    asked_M: Tensor
    position_M: Tensor
    inside: Region
    next: int
    inv_freq: Tensor
    again_KGND: Tensor | None = None
    seed: int = 0

    def columns(self, start: int, end: int) -> Tensor:
        """Those of [start, end) that have a query."""
        return start + self.asked_M[start:end].nonzero().squeeze(-1)

    @property
    def span(self) -> int:
        """How far ahead to ask: as many positions as the suffix is long, at least one."""
        return max(1, len(self.asked_M) - self.inside[1])


Source = Callable[[Stored, int], Tensor]
"""(stored, at least so many) -> q_KND"""


def spaced(columns: Tensor, count: int) -> Tensor:
    """About evenly spaced ones of them, the last among them: two of [4, 5, 6, 7] are [5, 7]."""
    size = len(columns)
    if count >= size:
        return columns
    return columns[(torch.arange(1, count + 1, device=columns.device) * size) // count - 1]


def pooled(q_KGND: Tensor) -> Tensor:
    """The query heads of a group one after the other."""
    return q_KGND.flatten(-3, -2)


def ahead(stored: Stored, columns: Tensor) -> Tensor:
    """The queries of some columns, the i-th turned to position next + i mod span."""
    goal = stored.next + torch.arange(len(columns), device=columns.device) % stored.span
    return turn(stored.q_KGMD[..., columns, :], goal - stored.position_M[columns], stored.inv_freq)


def own(stored: Stored, count: int) -> Tensor:
    """The region's own queries, turned to the positions that follow the cache."""
    return pooled(ahead(stored, own_columns(stored, count)))


def own_columns(stored: Stored, count: int) -> Tensor:
    """The columns whose queries `own` takes: an event records their tokens, and a replay turns the same ones."""
    return spaced(stored.columns(*stored.inside), _tokens(stored, count))


def suffix(stored: Stored, count: int) -> Tensor:
    """The queries of what stays behind the region, as they are."""
    columns = spaced(stored.columns(stored.inside[1], len(stored.asked_M)), _tokens(stored, count))
    return pooled(stored.q_KGMD[..., columns, :])


def context(stored: Stored, count: int) -> Tensor:
    """The queries of everything that stands, as they are."""
    columns = spaced(stored.columns(0, len(stored.asked_M)), _tokens(stored, count))
    return pooled(stored.q_KGMD[..., columns, :])


def repeat(stored: Stored, count: int) -> Tensor:
    """The queries of the region read a second time, at the end."""
    assert stored.again_KGND is not None
    read = torch.arange(stored.again_KGND.shape[-2], device=stored.again_KGND.device)
    return pooled(stored.again_KGND[..., spaced(read, _tokens(stored, count)), :])


def keys(stored: Stored, count: int) -> Tensor:
    """The region's keys, taken for queries: to be compared, about as bad as deleting."""
    return stored.k_KMD[..., spaced(torch.arange(*stored.inside, device=stored.k_KMD.device), count), :]


def gaussian(stored: Stored, count: int) -> Tensor:
    """Random queries with the spread of the region's own, each dimension for itself: to be compared."""
    like_KND = pooled(stored.q_KGMD[..., stored.columns(*stored.inside), :])
    draws = torch.Generator().manual_seed(stored.seed)
    shape = (*like_KND.shape[:-2], count, like_KND.shape[-1])
    noise = torch.randn(shape, generator=draws, dtype=like_KND.dtype).to(like_KND.device)
    return noise * like_KND.std(-2, keepdim=True, correction=0) + like_KND.mean(-2, keepdim=True)


def _tokens(stored: Stored, count: int) -> int:
    """Tokens for at least so many queries."""
    return math.ceil(count / stored.q_KGMD.shape[-3])


SOURCES: dict[str, Source] = {f.__name__: f for f in (own, suffix, context, repeat, keys, gaussian)}
"""By name, as settings and events say it."""
