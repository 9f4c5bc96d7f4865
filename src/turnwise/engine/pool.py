"""The memory of all caches: a stretch of columns a session, in stores that never take more than the budget.

A column is one token's (or slot's) keys and values in every layer. An extent of `size` columns lies in each store as
[K, size, D], so that each head's numbers lie one after the other, and equal extents side by side make one batch.
Shapes: K key/value heads, D head width, C columns of the pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

GRAIN = 64
"""Extents are multiples of this many columns."""

FIRST = 4096
"""Columns a pool without a budget starts with."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model writes for each token: layers, key/value heads, query heads of a group, numbers a head."""

    layers: int
    heads: int
    groups: int
    width: int
    dtype: torch.dtype
    device: torch.device

    @property
    def column_bytes(self) -> int:
        """Keys and values of all layers, and a bias a head."""
        return self.layers * self.heads * (2 * self.width * self.dtype.itemsize + 4)


@dataclass(slots=True, eq=False)
class Extent:
    """Columns [start, start + size) of the pool, owned by one session."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


def rounded(columns: int) -> int:
    """The next size of an extent, at most a quarter larger: 70 is 128, 600 is 640, 1030 is 1280."""
    step = GRAIN
    while columns > 8 * step:
        step *= 2
    return max(1, -(-columns // step)) * step


@dataclass(slots=True)
class Pool:
    """`columns` is its size, which grows only where `fixed` is False. Extents are kept in order."""

    shape: Shape
    columns: int
    fixed: bool
    keys: list[Tensor] = field(init=False)
    values: list[Tensor] = field(init=False)
    bias: list[Tensor] = field(default_factory=list)
    """Added to the logits of a column, [C * K]; empty as long as no session has any."""
    extents: list[Extent] = field(default_factory=list)
    peak: int = 0

    def __post_init__(self) -> None:
        self.keys, self.values = ([self._rows(self.shape.width) for _ in range(self.shape.layers)] for _ in range(2))

    @staticmethod
    def of(shape: Shape, max_bytes: int | None, max_columns: int | None) -> Pool:
        """The largest pool within both limits."""
        limits = [max_columns, None if max_bytes is None else max_bytes // shape.column_bytes]
        given = [limit for limit in limits if limit is not None]
        return Pool(shape, min(given) // GRAIN * GRAIN if given else FIRST, bool(given))

    @property
    def used(self) -> int:
        return sum(e.size for e in self.extents)

    @property
    def free(self) -> int:
        return self.columns - self.used

    def sized(self, columns: int) -> int:
        """Of the extent that so many columns get."""
        size = rounded(columns)
        return -(-columns // GRAIN) * GRAIN if self.fixed and size > self.columns else size

    @torch.inference_mode()
    def take(self, columns: int) -> Extent | None:
        """An extent for so many columns, beside another of its size where it can; None where there is no room."""
        size = self.sized(columns)
        hole = self._hole(size)
        if hole is None and not self.fixed:
            self._grow(size)
            hole = self._hole(size)
        if hole is None and size <= self.free:
            self.tidy()
            hole = self._hole(size)
        if hole is None:
            return None
        place, start = hole
        extent = Extent(start, size)
        self.extents.insert(place, extent)
        for store in self.bias:
            self.view(store, extent).zero_()
        self.peak = max(self.peak, self.used)
        return extent

    def give(self, extent: Extent) -> None:
        self.extents.remove(extent)

    def _holes(self) -> Iterator[tuple[int, int, int, int]]:
        """(place in the list, start, size, size of the extent before) of each stretch that nobody owns."""
        start, before = 0, 0
        for place, extent in enumerate([*self.extents, Extent(self.columns, 0)]):
            if extent.start > start:
                yield place, start, extent.start - start, before
            start, before = extent.end, extent.size

    def _hole(self, size: int) -> tuple[int, int] | None:
        """Behind an extent of equal size, or else in the largest hole, so that others of the size can follow."""
        fitting = [hole for hole in self._holes() if hole[2] >= size]
        if not fitting:
            return None
        place, start, _, _ = max(fitting, key=lambda hole: (hole[3] == size, hole[2], -hole[1]))
        return place, start

    def _rows(self, width: int, dtype: torch.dtype | None = None) -> Tensor:
        return zeros(self.columns * self.shape.heads, width, dtype or self.shape.dtype, self.shape.device)

    @torch.inference_mode()
    def _grow(self, more: int) -> None:
        """Twice the columns, or as many more as are asked for."""
        old = self.columns * self.shape.heads
        self.columns += max(self.columns, more)
        for stores in (self.keys, self.values, self.bias):
            for layer, store in enumerate(stores):
                stores[layer] = self._rows(store.shape[1], store.dtype)
                stores[layer][:old] = store

    @torch.inference_mode()
    def tidy(self) -> None:
        """Move all extents to the front, so that what is free is one hole."""
        start, heads = 0, self.shape.heads
        for extent in self.extents:
            if extent.start > start:
                for store in (*self.keys, *self.values, *self.bias):
                    _shift(store, extent.start * heads, start * heads, extent.size * heads)
                extent.start = start
            start = extent.end

    def view(self, store: Tensor, extent: Extent) -> Tensor:
        """An extent's part of a store: [K, size, D]."""
        return self.run(store, extent, 1)[0]

    def run(self, store: Tensor, first: Extent, count: int) -> Tensor:
        """So many equal extents side by side: [count, K, size, D]."""
        heads = self.shape.heads
        rows = store[first.start * heads : (first.start + count * first.size) * heads]
        return rows.view(count, heads, first.size, -1)

    @torch.inference_mode()
    def copy(self, source: Extent, target: Extent, start: int, end: int) -> None:
        """Write columns [start, end) of one extent into another, at the same places."""
        for store in (*self.keys, *self.values, *self.bias):
            self.view(store, target)[:, start:end] = self.view(store, source)[:, start:end]

    def with_bias(self) -> list[Tensor]:
        """The bias of every column, made when a session first needs one."""
        if not self.bias:
            self.bias = [self._rows(1, torch.float32) for _ in self.keys]
        return self.bias

    @torch.inference_mode()
    def wipe(self) -> None:
        """Forget numbers that are not finite: a column nobody sees would still spoil those beside it."""
        for store in (*self.keys, *self.values, *self.bias):
            store.zero_()

    def check(self) -> None:
        """Extents lie one behind the other within the pool."""
        start = 0
        for extent in self.extents:
            assert extent.start >= start, "extents overlap"
            start = extent.end
        assert start <= self.columns, "an extent lies past the pool's end"


def zeros(rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that, on a CPU, take memory only where they are written to."""
    if device.type != "cpu":
        return torch.zeros(rows, width, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(rows * width * dtype.itemsize, np.uint8)).view(dtype).view(rows, width)


def _shift(rows: Tensor, start: int, goal: int, count: int) -> None:
    """Move rows towards the front, in pieces that do not overlap: no copy of them is held."""
    step = start - goal
    for at in range(0, count, step):
        size = min(step, count - at)
        rows[goal + at : goal + at + size] = rows[start + at : start + at + size]
