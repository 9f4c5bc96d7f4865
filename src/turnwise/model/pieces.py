"""Exact attention on the CPU that costs what is visible: a row is cut into pieces, each one plain attention call.

Neighbouring keys that are visible equally far make a run; whoever sees a run sees all of it but for the triangle where
it sees itself, so a run is one causal call over slices, without a mask or a copy. What a query gathers from several
pieces is merged by their log-sum-exps, in both directions. Shapes: H query heads, K key/value heads, G = H / K, T
queries, S key columns, D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

WINDOW = 64
"""Runs shorter than this are computed together under a mask of at most so many tokens: a call costs as much as they."""

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
"""What torch's own attention calls here; only these hand out the log-sum-exps, and take merged ones back."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Queries [start, end) over the key columns [first, last), all of them unless `causal` (query start + n sees n + 1)
    or a `mask` [queries, columns] of 0 and -inf says otherwise. Every query sees at least one."""

    start: int
    end: int
    first: int
    last: int
    causal: bool = False
    mask: Tensor | None = None


def pieces(
    visible_until: NDArray[np.int32], window: int = WINDOW, births: NDArray[np.int32] | None = None
) -> list[Piece]:
    """A row's pieces, their queries' first tokens ascending.

    A prefix of 200 with branches of 100 and 90, visible_until [390] * 200 + [300] * 100 + [390] * 90: queries 0..390
    over columns 0..200, 200..300 over 200..300 and 300..390 over 300..390, all causal. Columns born at another token
    than their own number come behind those of the tokens: born at 4 and 4, visible until 9, queries 4..9 see both.
    """
    if births is not None:
        tokens = int((births == np.arange(len(births))).cumprod().sum())
        found = pieces(visible_until[:tokens], window) + _born(births, visible_until, tokens)
        return sorted(found, key=lambda p: p.start)
    found = []
    for start, end in _windows(visible_until, window):
        if (visible_until[start:end] == visible_until[start]).all():
            found.append(Piece(start, int(visible_until[start]), start, end, causal=True))
            continue
        found.append(Piece(start, end, start, end, mask=_mask(visible_until[start:end] - start)))
        for a, b in _runs(visible_until[start:end]):
            until = int(visible_until[start + a])
            if until > end:
                found.append(Piece(end, until, start + a, start + b))
    return found


def _born(births: NDArray[np.int32], deaths: NDArray[np.int32], tokens: int) -> list[Piece]:
    """Neighbouring columns behind the tokens' that live equally long."""
    span = births[tokens:].astype(np.int64) << 32 | deaths[tokens:]
    runs = [(tokens + a, tokens + b) for a, b in _runs(span)] if len(span) else []
    return [Piece(int(births[a]), int(deaths[a]), a, b) for a, b in runs]


def _runs(visible_until: NDArray[np.integer[Any]]) -> list[tuple[int, int]]:
    """Stretches of equal values: [4, 4, 2] gives (0, 2), (2, 3)."""
    borders = [0, *(np.flatnonzero(np.diff(visible_until)) + 1).tolist(), len(visible_until)]
    return list(pairwise(borders))


def _windows(visible_until: NDArray[np.int32], window: int) -> list[tuple[int, int]]:
    """Runs, short neighbours joined to at most `window` tokens: runs of 9, 2, 3, 4 in windows of 5 are 9, 5, 4."""
    found: list[tuple[int, int]] = []
    for start, end in _runs(visible_until):
        if found and end - found[-1][0] <= window:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _mask(visible_until: NDArray[np.int32]) -> Tensor:
    rows = np.arange(len(visible_until))
    visible = (rows[None] <= rows[:, None]) & (rows[:, None] < visible_until[None])
    return torch.from_numpy(np.where(visible, 0.0, -np.inf).astype(np.float32))


def attend_pieces(q_1HTD: Tensor, k_1KSD: Tensor, v_1KSD: Tensor, plan: Sequence[Piece], scale: float) -> Tensor:
    """What every query gathers over all its pieces; each query must be in one. Keys may have more columns than queries.

    Query heads of a group read the same keys through a view, so nothing is repeated in memory.
    """
    groups = q_1HTD.shape[1] // k_1KSD.shape[1]
    q_GKTD = q_1HTD[0].unflatten(0, (-1, groups)).transpose(0, 1)
    out_TKGD: Tensor = _Gathered.apply(_rows(q_GKTD), _rows(k_1KSD[0]), _rows(v_1KSD[0]), plan, scale)  # type: ignore[no-untyped-call]
    return out_TKGD.flatten(1, 2)[None].transpose(1, 2)


def _rows(x: Tensor) -> Tensor:
    """The kernels read a head's numbers one after the other."""
    return x if x.stride(-1) == 1 else x.contiguous()


class _Gathered(torch.autograd.Function):
    """q_GKTD, k_KSD, v_KSD -> out_TKGD.

    Given the merged output and log-sum-exp, the backward pass of one piece gives exactly its share of the gradient.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: Sequence[Piece], scale: float) -> Tensor:
        groups, heads, length, width = q.shape
        out = q.new_empty((length, heads, groups, width), dtype=torch.promote_types(q.dtype, torch.float32))
        out_GKTD, done = out.permute(2, 1, 0, 3), 0
        lse = out.new_empty((groups, heads, length))
        for p in plan:
            some, some_lse = _flash(*_inputs(q, k, v, p), 0.0, p.causal, attn_mask=_cast(p.mask, q), scale=scale)
            fresh = min(max(done, p.start), p.end)
            merged, new = slice(p.start, fresh), slice(fresh, p.end)
            if fresh > p.start:
                old = slice(fresh - p.start)
                _merge(out_GKTD[:, :, merged], lse[:, :, merged], some[:, :, old], some_lse[:, :, old])
            out_GKTD[:, :, new], lse[:, :, new] = some[:, :, fresh - p.start :], some_lse[:, :, fresh - p.start :]
            done = max(done, p.end)
        assert done == length
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.plan, ctx.scale = plan, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        grad, out = (_rows(x.permute(2, 1, 0, 3)) for x in (grad, out))
        sums = [torch.zeros_like(x, dtype=lse.dtype) for x in (q, k, v)]
        for p in ctx.plan:
            asked = slice(p.start, p.end)
            given = (grad[:, :, asked], *_inputs(q, k, v, p), out[:, :, asked], lse[:, :, asked])
            mask = _cast(p.mask, q)
            parts = _flash_backward(*given, 0.0, p.causal, attn_mask=mask, scale=ctx.scale)
            sums[0][:, :, asked] += parts[0]
            sums[1][:, p.first : p.last] += parts[1].sum(0)
            sums[2][:, p.first : p.last] += parts[2].sum(0)
        return (*(s.to(q.dtype) for s in sums), None, None)


def _inputs(q: Tensor, k: Tensor, v: Tensor, p: Piece) -> tuple[Tensor, Tensor, Tensor]:
    """The piece's queries and, for every query head of a group, its keys and values."""
    keys, values = (x[:, p.first : p.last].expand(len(q), -1, -1, -1) for x in (k, v))
    return q[:, :, p.start : p.end], keys, values


def _cast(mask: Tensor | None, q: Tensor) -> Tensor | None:
    return None if mask is None else mask.to(q.dtype)


def _merge(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> None:
    """Two averages into one, each weighed by the exponentials it was made from: out and lse are changed in place."""
    total = torch.logaddexp(lse, more_lse)
    out.mul_((lse - total).exp_()[..., None]).add_(more * (more_lse - total).exp_()[..., None])
    lse.copy_(total)
