"""Reference queries, keys and the kept ones in; the slots that stand for a region out.

Slots keep their keys; their values are fitted so that attention over everything visible comes out as before, with the
mass the kept keys will really have. Nothing is clamped: softmaxes are taken over exactly the columns they speak of.
Shapes: K key/value heads, N reference queries (pooled over the query heads of a group), M visible columns, T slots,
D head width; more dimensions may lead. fp32 inside, or fp64 when given.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from turnwise.kv.part import Gist, Part, join

Region = tuple[int, int]
"""The columns [start, end) that are compacted, among those visible."""


def slot_map(
    q_KND: Tensor, k_KMD: Tensor, v_KMD: Tensor, keep_KT: Tensor, inside: Region, scale: float, ridge: float
) -> Tensor:
    """The linear map from visible values to slot values: C2 = B @ v, B = Sel + (X'X + lam I)^-1 X'(A - X Sel).

    Columns 0..5, inside (1, 5), keep [[2, 4]]: slot 0 is column 2 with a value mixed from all six, slot 1 column 4.
    Gradients flow where the inputs ask for them; B does not depend on the values, of which only the shape is read.
    """
    assert v_KMD.shape[:-1] == k_KMD.shape[:-1]
    q, k = (x.to(inner(x.dtype)) for x in (q_KND, k_KMD))
    return linear(scale * (q @ k.mT), staying(keep_KT, inside, k.shape[-2]), keep_KT, ridge)


def linear(
    logits_KNM: Tensor,
    stay_KM: Tensor,
    keep_KT: Tensor,
    ridge: float | Tensor,
    asked_KN: Tensor | None = None,
    made_KT: Tensor | None = None,
) -> Tensor:
    """The map of `slot_map` from logits, `stay` saying which columns are left.

    Of events padded to one size, `asked` and `made` say which queries and slots there are; absent columns have logits
    of -inf, and `ridge` is for the mean over padded slots.
    """
    mass_KNM = logits_KNM.masked_fill(~stay_KM[..., None, :], -torch.inf).softmax(-1)
    lost_KNM = logits_KNM.softmax(-1) - mass_KNM
    x_KNT = mass_KNM.gather(-1, _rows(keep_KT, logits_KNM.shape[-2]))
    if asked_KN is not None:
        x_KNT = x_KNT * asked_KN[..., None]
    if made_KT is not None:
        x_KNT = x_KNT * made_KT[..., None, :]
    mixed_KTM = solve(x_KNT, ridge, x_KNT.mT @ lost_KNM)
    return mixed_KTM.scatter_add(-1, keep_KT[..., None], mixed_KTM.new_ones(*keep_KT.shape, 1))


def slots(k_KMD: Tensor, v_KMD: Tensor, keep_KT: Tensor, B_KTM: Tensor) -> tuple[Tensor, Tensor]:
    """Slot keys C1_KTD, the kept ones as they are, and slot values C2_KTD = B @ v."""
    return take(k_KMD, keep_KT), B_KTM @ v_KMD.to(B_KTM.dtype)


class Fit(NamedTuple):
    """Slot values, and how much of the attention over everything visible they miss, relative to it, a head."""

    values_KTD: Tensor
    residual_K: Tensor


def fit(inside: Gist, outside: Gist, kept: Part, v_KTD: Tensor, ridge: float) -> Fit:
    """The values `slot_map` gives, without its map: what eviction would lose, regressed on the mass of the slots."""
    _, full_KND = join(inside, outside)
    mass_KN1, left_KND = join(kept, outside)
    lost_KND = full_KND - left_KND
    x_KNT = kept.p_KNC * (kept.mass_KN1 - mass_KN1).exp()
    added_KTD = solve(x_KNT, ridge, x_KNT.mT @ lost_KND)
    return Fit(v_KTD + added_KTD, _relative(lost_KND - x_KNT @ added_KTD, full_KND))


def untouched(inside: Gist, outside: Gist, kept: Part, v_KTD: Tensor) -> Fit:
    """The values of the kept keys as they are."""
    (_, full_KND), (_, left_KND) = join(inside, outside), join(kept, outside)
    return Fit(v_KTD, _relative(full_KND - left_KND, full_KND))


def _relative(off_KND: Tensor, full_KND: Tensor) -> Tensor:
    """|off| / |full| over queries and width; 0 where both are."""
    sizes = [x.square().sum((-2, -1)).sqrt() for x in (off_KND, full_KND)]
    return sizes[0] / (sizes[1] + torch.finfo(sizes[1].dtype).tiny)


def staying(keep_KT: Tensor, inside: Region, columns: int) -> Tensor:
    """Which columns are left: the kept ones and all outside. keep [[2]], inside (1, 3) of 4: [[1, 0, 1, 1]]."""
    stay_KM = torch.ones(*keep_KT.shape[:-1], columns, dtype=torch.bool, device=keep_KT.device)
    stay_KM[..., inside[0] : inside[1]] = False
    return stay_KM.scatter(-1, keep_KT, True)


def solve(x_KNT: Tensor, ridge: float | Tensor, right_KTC: Tensor) -> Tensor:
    """(X'X + lam I)^-1 right by Cholesky, lam = ridge * trace(X'X) / t + 1e-12: never an unregularised fit."""
    gram_KTT = x_KNT.mT @ x_KNT
    diagonal_KT = gram_KTT.diagonal(dim1=-2, dim2=-1)
    if not diagonal_KT.shape[-1]:
        return right_KTC
    lam_K1 = ridge * diagonal_KT.mean(-1, keepdim=True) + 1e-12
    factor = torch.linalg.cholesky(gram_KTT + torch.diag_embed(lam_K1.expand_as(diagonal_KT)))
    return torch.cholesky_solve(right_KTC, factor)


def take(x_KMD: Tensor, keep_KT: Tensor) -> Tensor:
    """The kept rows of each head."""
    return x_KMD.gather(-2, keep_KT[..., None].expand(*keep_KT.shape, x_KMD.shape[-1]))


def inner(dtype: torch.dtype) -> torch.dtype:
    """What is computed in: fp32, or fp64 when given."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _rows(index_KS: Tensor, rows: int) -> Tensor:
    """The same columns in every row."""
    return index_KS[..., None, :].expand(*index_KS.shape[:-1], rows, -1)
