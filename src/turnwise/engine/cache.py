"""Keys and values of all sessions in one pool, and attention of a batch of them over it.

A session owns a slot; token t of its conversation is written at [slot, t]. Shapes: S slots, L length of a slot,
N new tokens of all sessions one after the other, B sessions, Q longest feed, T longest conversation,
H query heads, K key/value heads, D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

GROW = 256
"""Slots grow by this many tokens at a time."""


@dataclass(frozen=True, slots=True)
class Feed:
    """`count` new tokens of the session in `slot`, whose first `written` tokens are cached already."""

    slot: int
    written: int
    count: int


@dataclass(slots=True)
class Pool:
    """The cache of every layer: keys[layer] and values[layer] are [S, L, K, D]."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    slots: int = 0
    length: int = 0

    def take(self) -> int:
        """The lowest free slot, so that sessions opened together lie side by side."""
        if not self.free:
            more = max(8, self.slots)
            self.free = list(range(self.slots, self.slots + more))
            self.slots += more
        self.free.sort()
        return self.free.pop(0)

    def give(self, slot: int) -> None:
        assert slot not in self.free
        self.free.append(slot)

    def reserve(self, tokens: int) -> None:
        """Make room for conversations of this many tokens."""
        self.length = max(self.length, -(-tokens // GROW) * GROW)

    def layer(self, index: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, grown to the pool's size; `like` [1, K, N, D] tells heads, width and dtype."""
        if index == len(self.keys):
            empty = like.new_zeros(0, 0, like.shape[1], like.shape[3])
            self.keys.append(empty)
            self.values.append(empty)
        self.keys[index], self.values[index] = (
            _grown(x, self.slots, self.length) for x in (self.keys[index], self.values[index])
        )
        return self.keys[index], self.values[index]

    @torch.inference_mode()
    def copy(self, source: int, target: int, tokens: int) -> None:
        """Write the first tokens of one slot into another, which may be newer than the layers' last growth."""
        for stores in (self.keys, self.values):
            for index, store in enumerate(stores):
                stores[index] = _grown(store, self.slots, self.length)
                stores[index][target, :tokens] = stores[index][source, :tokens]

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in (*self.keys, *self.values))


def _grown(store: Tensor, slots: int, length: int) -> Tensor:
    if store.shape[0] >= slots and store.shape[1] >= length:
        return store
    larger = store.new_zeros(max(slots, store.shape[0]), max(length, store.shape[1]), *store.shape[2:])
    larger[: store.shape[0], : store.shape[1]] = store
    return larger


class CacheAttention:
    """Writes each layer's new keys and values into the pool, then attends: a session sees all it has written."""

    def __init__(self, pool: Pool, feeds: Sequence[Feed], device: torch.device) -> None:
        self.pool = pool
        pool.reserve(max(f.written + f.count for f in feeds))
        slots = np.repeat([f.slot for f in feeds], [f.count for f in feeds])
        self.places = np.concatenate([np.arange(f.written, f.written + f.count) for f in feeds])
        self.slot_N = torch.from_numpy(slots).to(device)
        self.place_N = torch.from_numpy(self.places).to(device)
        self.groups = [_group(feeds, members, device) for members in _alike(feeds)]

    @property
    def positions(self) -> Tensor:
        return self.place_N[None]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        keys, values = self.pool.layer(layer, k)
        keys[self.slot_N, self.place_N] = k[0].transpose(0, 1)
        values[self.slot_N, self.place_N] = v[0].transpose(0, 1)
        q_NHD = q[0].transpose(0, 1)
        out_NHD = torch.empty_like(q_NHD)
        for group in self.groups:
            out_NHD[group.token_M] = group.attend(q_NHD, keys, values, scale)
        return out_NHD.transpose(0, 1)[None]


@dataclass(frozen=True, slots=True)
class _Group:
    """Sessions with feeds of about one length, attended in one padded call."""

    slots: Tensor | slice
    longest: int
    pad_BQ: Tensor
    mask_BQT: Tensor
    token_M: Tensor
    real_BQ: Tensor

    def attend(self, q_NHD: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Fold the query heads of a key/value head into its queries, so that no key is copied for them."""
        q = q_NHD[self.pad_BQ]
        b, n, h, d = q.shape
        k, v = (x[self.slots, : self.longest].transpose(1, 2) for x in (keys, values))
        heads = k.shape[1]
        folded = q.transpose(1, 2).reshape(b, heads, h // heads * n, d)
        mask = self.mask_BQT[:, None].repeat(1, 1, h // heads, 1)
        out = sdpa(folded, k, v, mask, scale=scale)
        return out.reshape(b, h, n, d).transpose(1, 2)[self.real_BQ]


def _alike(feeds: Sequence[Feed]) -> list[list[int]]:
    """Group feeds whose lengths round up to the same power of two, so that padding at most doubles the work."""
    groups: dict[int, list[int]] = {}
    for i, feed in enumerate(feeds):
        groups.setdefault((feed.count - 1).bit_length(), []).append(i)
    return list(groups.values())


def _group(feeds: Sequence[Feed], members: list[int], device: torch.device) -> _Group:
    starts = np.concatenate([[0], np.cumsum([f.count for f in feeds])])[members]
    counts = np.array([feeds[i].count for i in members])
    written = np.array([feeds[i].written for i in members])
    longest = int((written + counts).max())
    step = np.arange(counts.max())
    real = step[None] < counts[:, None]
    pad = np.where(real, starts[:, None] + step[None], starts[:, None])
    mask = np.arange(longest)[None, None] <= np.where(real, written[:, None] + step[None], 0)[:, :, None]
    token = pad[real]

    def put(x: np.ndarray) -> Tensor:
        return torch.from_numpy(x).to(device)

    return _Group(_slots([feeds[i].slot for i in members], device), longest, put(pad), put(mask), put(token), put(real))


def _slots(slots: list[int], device: torch.device) -> Tensor | slice:
    """A slice where the slots lie side by side: it reads the cache without copying it."""
    if slots == list(range(slots[0], slots[0] + len(slots))):
        return slice(slots[0], slots[0] + len(slots))
    return torch.tensor(slots, device=device)
