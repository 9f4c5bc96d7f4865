"""Queries of tokens as they were computed, kept in the pool beside keys and values for a compaction to come.

An extent for queries has c = ceil(G / 2) columns a query: the first c query heads of a group lie where keys would, the
others where values would. Shapes: N new tokens, M stored ones, K key/value heads, G query heads of a group, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.engine.pool import Extent, Pool, Shape


def columns_each(shape: Shape) -> int:
    """Columns of an extent that one token's queries take: three query heads a group take two."""
    return -(-shape.groups // 2)


def _rows(shape: Shape, extent: Extent, places_M: NDArray[np.int_]) -> NDArray[np.int_]:
    """Rows [M, K, c] of the stores in which queries stand."""
    each = columns_each(shape)
    heads, halves = np.arange(shape.heads)[:, None], np.arange(each)
    return extent.start * shape.heads + heads * extent.size + halves * (extent.size // each) + places_M[:, None, None]


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Which tokens of a batch have their queries stored, and in which rows [M * K * c]."""

    shape: Shape
    token_M: Tensor
    rows: Tensor

    @staticmethod
    def of(shape: Shape, wanted: Sequence[tuple[Extent, NDArray[np.int_], NDArray[np.int_]]]) -> QueryRows | None:
        """From each session's extent, the tokens of the batch, and the places their queries get."""
        if not wanted:
            return None
        rows = np.concatenate([_rows(shape, extent, places).ravel() for extent, _, places in wanted])
        tokens = np.concatenate([tokens for _, tokens, _ in wanted])
        return QueryRows(shape, *(torch.from_numpy(x).to(shape.device) for x in (tokens, rows)))

    def write(self, keys: Tensor, values: Tensor, q_1HND: Tensor) -> None:
        q_MKGD = q_1HND[0].unflatten(0, (-1, self.shape.groups))[:, :, self.token_M].permute(2, 0, 1, 3)
        each, width = columns_each(self.shape), q_1HND.shape[3]
        rows = self.rows.view(-1, each)
        keys.index_copy_(0, self.rows, q_MKGD[:, :, :each].reshape(-1, width))
        rest = self.shape.groups - each
        if rest:
            values.index_copy_(0, rows[:, :rest].reshape(-1), q_MKGD[:, :, each:].reshape(-1, width))


def read(pool: Pool, extent: Extent, layer: int, places_M: NDArray[np.int_]) -> Tensor:
    """Stored queries [K, G, M, D] of a layer."""
    shape, each = pool.shape, columns_each(pool.shape)
    rows = torch.from_numpy(_rows(shape, extent, places_M)).to(shape.device)
    halves = ((pool.keys[layer], rows), (pool.values[layer], rows[:, :, : shape.groups - each]))
    q_MKGD = torch.cat([store[some.flatten()].view(*some.shape, shape.width) for store, some in halves], 2)
    return q_MKGD.permute(1, 2, 0, 3)


def pack(pool: Pool, extent: Extent, kept_M: NDArray[np.int_]) -> None:
    """Keep these queries alone, at places 0, 1, ..."""
    _write(pool, (extent, kept_M), (extent, np.arange(len(kept_M))))


def copy(pool: Pool, source: Extent, target: Extent, count: int) -> None:
    """The first queries of one extent into another."""
    _write(pool, (source, np.arange(count)), (target, np.arange(count)))


Places = tuple[Extent, NDArray[np.int_]]


@torch.inference_mode()
def _write(pool: Pool, source: Places, target: Places) -> None:
    old, new = (torch.from_numpy(_rows(pool.shape, *p).ravel()).to(pool.shape.device) for p in (source, target))
    for store in (*pool.keys, *pool.values):
        store[new] = store[old]
