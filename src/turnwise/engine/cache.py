"""Attention of a batch of sessions over the pool: each layer's new keys and values are written, then looked at.

Sessions whose extents lie side by side are attended together, without copying a key; whoever reads much, or lies alone,
is attended alone. Shapes: N new tokens of all sessions one after the other, B sessions of a run, Q longest feed,
T most columns, H query heads, K key/value heads, G = H / K, D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from turnwise.engine.pool import Extent, Pool
from turnwise.engine.stored import QueryRows

FEW = 64
"""Feeds of more tokens are attended alone: padding others to them would cost more than a call."""

FEW_ROWS = 32
"""Queries of a head up to which keys times queries is the faster way round."""

RUN_NUMBERS = 2**24
"""Logits a run may have in one layer."""


@dataclass(frozen=True, slots=True)
class Feed:
    """`count` new tokens, of which the first has this position, behind the `columns` that stand in an extent."""

    extent: Extent
    columns: int
    count: int
    position: int
    biased: bool = False

    @property
    def total(self) -> int:
        return self.columns + self.count


class CacheAttention:
    """What the model's layers call. A new token sees all columns of its session up to its own."""

    def __init__(self, pool: Pool, feeds: Sequence[Feed], queries: QueryRows | None = None) -> None:
        self.pool = pool
        self.queries = queries
        device, heads = pool.shape.device, np.arange(pool.shape.heads)
        counts = [f.count for f in feeds]
        first_N = np.repeat([f.extent.start for f in feeds], counts)
        size_N = np.repeat([f.extent.size for f in feeds], counts)
        column_N = np.concatenate([np.arange(f.columns, f.total) for f in feeds])
        rows_NK = first_N[:, None] * len(heads) + heads * size_N[:, None] + column_N[:, None]
        self.rows_NK = torch.from_numpy(rows_NK.ravel()).to(device)
        self.position_N = np.concatenate([np.arange(f.position, f.position + f.count) for f in feeds])
        starts = np.concatenate([[0], np.cumsum(counts)])
        self.groups = [_group(pool, [(feeds[i], int(starts[i])) for i in run]) for run in runs(pool, feeds)]

    @property
    def positions(self) -> Tensor:
        return torch.from_numpy(self.position_N).to(self.pool.shape.device)[None]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        keys, values = self.pool.keys[layer], self.pool.values[layer]
        for store, new in ((keys, k), (values, v)):
            store.index_copy_(0, self.rows_NK, new[0].transpose(0, 1).reshape(-1, new.shape[3]))
        if self.queries is not None:
            self.queries.write(keys, values, q)
        bias = self.pool.bias[layer] if self.pool.bias else None
        q_NHD = q[0].transpose(0, 1)
        if len(self.groups) == 1 and isinstance(self.groups[0].token_M, slice):
            return self.groups[0].attend(q_NHD, keys, values, bias, scale).transpose(0, 1)[None]
        out_NHD = torch.empty_like(q_NHD)
        for group in self.groups:
            out_NHD[group.token_M] = group.attend(q_NHD, keys, values, bias, scale)
        return out_NHD.transpose(0, 1)[None]


def runs(pool: Pool, feeds: Sequence[Feed]) -> list[list[int]]:
    """Which feeds are attended together: those of about one length in equal extents side by side.

    Extents at 0, 64 and 192 of size 64, each fed one token: [[0, 1], [2]].
    """
    order = sorted(range(len(feeds)), key=lambda i: ((feeds[i].count - 1).bit_length(), feeds[i].extent.start))
    found: list[list[int]] = []
    for i in order:
        if found and _joins(pool, [feeds[j] for j in found[-1]], feeds[i]):
            found[-1].append(i)
        else:
            found.append([i])
    return found


def _joins(pool: Pool, run: list[Feed], feed: Feed) -> bool:
    last = run[-1]
    alike = last.extent.size == feed.extent.size and last.biased == feed.biased
    beside = alike and last.extent.end == feed.extent.start
    if not beside or feed.count > FEW or (last.count - 1).bit_length() != (feed.count - 1).bit_length():
        return False
    totals = [f.total for f in (*run, feed)]
    heads, most = pool.shape.heads * pool.shape.groups, max(totals)
    numbers = len(totals) * heads * most * max(f.count for f in (*run, feed))
    return numbers <= RUN_NUMBERS and most <= max(256, 2 * min(totals))


@dataclass(frozen=True, slots=True)
class _Alone:
    """One session's new tokens, `token_M` of the batch."""

    pool: Pool
    feed: Feed
    token_M: slice
    mask_QT: Tensor | None

    def attend(self, q_NHD: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        """Query heads of a group see the same keys through a view."""
        groups, feed = self.pool.shape.groups, self.feed
        q_GKQD = q_NHD[self.token_M].unflatten(1, (-1, groups)).permute(2, 1, 0, 3)
        k, v = (self.pool.view(x, feed.extent)[:, : feed.total] for x in (keys, values))
        mask = self.mask_QT
        if feed.biased and bias is not None:
            bias_KT = self.pool.view(bias, feed.extent)[:, : feed.total, 0].to(q_NHD.dtype)
            mask = bias_KT[:, None] if mask is None else bias_KT[:, None] + mask
        causal = mask is None and feed.count > 1
        if feed.count == 1:
            mask = None if mask is None else mask.expand(-1, groups, -1)[None]
            out = sdpa(q_GKQD[:, :, 0].transpose(0, 1)[None], k[None], v[None], mask, scale=scale)
            return out[0].flatten(0, 1)[None]
        k, v = (x.expand(groups, -1, -1, -1) for x in (k, v))
        mask = None if mask is None else mask.expand(k.shape[1], -1, -1)[None]
        out = sdpa(q_GKQD, k, v, mask, is_causal=causal, scale=scale)
        return out.permute(2, 1, 0, 3).flatten(1, 2)


@dataclass(frozen=True, slots=True)
class _Run:
    """Sessions side by side, attended in one padded product; where `token_M` is a slice, each has one token."""

    pool: Pool
    first: Extent
    longest: int
    biased: bool
    pad_BQ: Tensor
    mask_BQT: Tensor | None
    token_M: Tensor | slice
    real_BQ: Tensor

    def attend(self, q_NHD: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        """Softmax in fp32. Fold the query heads of a group into its queries, so that no key is copied for them."""
        q = q_NHD[self.token_M][:, None] if isinstance(self.token_M, slice) else q_NHD[self.pad_BQ]
        b, n, h, d = q.shape
        k, v, *more = (
            self.pool.run(x, self.first, b)[:, :, : self.longest]
            for x in (keys, values, *([bias] if self.biased and bias is not None else []))
        )
        heads = k.shape[1]
        folded = q.view(b, n, heads, -1, d).permute(0, 2, 3, 1, 4).reshape(b * heads, -1, d)
        logits = _product(folded, k.flatten(0, 1)).float().mul_(scale).view(b, heads, -1, n, self.longest)
        if self.mask_BQT is not None:
            logits += self.mask_BQT[:, None, None]
        if more:
            logits += more[0].transpose(2, 3)[:, :, None]
        p = logits.softmax(-1).to(v.dtype).view(b * heads, -1, self.longest)
        out = torch.bmm(p, v.flatten(0, 1)).view(b, heads, -1, n, d).permute(0, 3, 1, 2, 4).reshape(b, n, h, d)
        return out[:, 0] if n == 1 else out[self.real_BQ]


def _product(q_BMD: Tensor, k_BTD: Tensor) -> Tensor:
    """q times k transposed. With few rows of bf16 on a CPU the product of keys and queries is five times as fast as
    that of queries and keys."""
    if q_BMD.dtype == torch.bfloat16 and q_BMD.shape[1] <= FEW_ROWS and q_BMD.device.type == "cpu":
        return torch.bmm(k_BTD, q_BMD.mT).mT.contiguous()
    return torch.bmm(q_BMD, k_BTD.mT)


def _group(pool: Pool, run: list[tuple[Feed, int]]) -> _Alone | _Run:
    """`run` are feeds and where their tokens begin in the batch."""
    feeds, starts = [f for f, _ in run], np.array([s for _, s in run])
    count_B, column_B = (np.array(x) for x in ([f.count for f in feeds], [f.columns for f in feeds]))
    longest, step_Q = int((count_B + column_B).max()), np.arange(count_B.max())
    real_BQ = step_Q[None] < count_B[:, None]
    seen_BQ = np.where(real_BQ, column_B[:, None] + step_Q[None], 0)
    mask_BQT = None
    if not (seen_BQ == longest - 1).all() and not (len(run) == 1 and not column_B[0]):
        mask_BQT = np.where(np.arange(longest) <= seen_BQ[:, :, None], 0.0, -np.inf).astype(np.float32)
    return _made(pool, feeds, starts, longest, real_BQ, mask_BQT)


def _made(
    pool: Pool,
    feeds: list[Feed],
    starts: NDArray[np.int_],
    longest: int,
    real_BQ: NDArray[np.bool_],
    mask_BQT: NDArray[np.float32] | None,
) -> _Alone | _Run:
    device = pool.shape.device
    mask = None if mask_BQT is None else torch.from_numpy(mask_BQT).to(device)
    if len(feeds) == 1:
        tokens = slice(int(starts[0]), int(starts[0]) + feeds[0].count)
        return _Alone(pool, feeds[0], tokens, None if mask is None else mask[0].to(pool.shape.dtype))
    if real_BQ.shape[1] == 1 and (np.diff(starts) == 1).all():
        token = slice(int(starts[0]), int(starts[-1]) + 1)
        return _Run(pool, feeds[0].extent, longest, feeds[0].biased, torch.empty(0), mask, token, torch.empty(0))
    pad_BQ = np.where(real_BQ, starts[:, None] + np.arange(real_BQ.shape[1]), starts[:, None])
    pad, tokens_M, real = (torch.from_numpy(x).to(device) for x in (pad_BQ, pad_BQ[real_BQ], real_BQ))
    return _Run(pool, feeds[0].extent, longest, feeds[0].biased, pad, mask, tokens_M, real)
