"""One event on one layer, or on several at once: reference queries, keys and values in, the slots that remain out.

What counts is in `Settings`; a method that is not named here is added with one function. Shapes as in fit.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from turnwise.kv.bias import log_weights
from turnwise.kv.fit import Fit, Region, fit, inner, take, untouched
from turnwise.kv.part import Gist, Part, gist, join, part
from turnwise.kv.score import score
from turnwise.kv.select import budgets, newest, omp, top
from turnwise.types import Settings

ON_THE_WIRE = {"attention_matching": "match", "markovian": "delete"}
"""Names other programs give to methods."""


class Slots(NamedTuple):
    """What an event leaves of a region: columns kept (among those visible), keys, values, what is added to their logits
    (-inf: nobody sees it), and the relative residual of the fit, an estimate of what was lost."""

    keep_KT: Tensor
    keys_KTD: Tensor
    values_KTD: Tensor
    bias_KT: Tensor | None
    residual_K: Tensor


@torch.no_grad()
def compact(
    q_KND: Tensor,
    k_KMD: Tensor,
    v_KMD: Tensor,
    inside: Region,
    scale: float,
    settings: Settings,
    kept_KT: Tensor | None = None,
) -> Slots:
    """Compact the columns `inside` among those visible, seen by the reference queries.

    An event that is repeated says which columns it `kept`, counted from the region's start; -1 only fills up.
    """
    start, end = inside
    t = settings.slots(end - start)
    q, k, v = (x.to(inner(k_KMD.dtype)) for x in (q_KND * scale, k_KMD, v_KMD))
    region = gist(q, k[..., start:end, :], v[..., start:end, :])
    rest = gist(q, *(torch.cat([x[..., :start, :], x[..., end:, :]], -2) for x in (k, v)))
    if kept_KT is None:
        keep_KT, bias_KT = _choose(region, q, k[..., start:end, :], t, settings)
    else:
        keep_KT, bias_KT = kept_KT.clamp(min=0), _hidden(kept_KT < 0)
    keep_KT = keep_KT + start
    keys, values = take(k, keep_KT), take(v, keep_KT)
    kept = part(q, keys, values, bias_KT)
    if settings.bias and t:
        bias_KT = log_weights(kept, region, join(region, rest)[0]) + (0 if bias_KT is None else bias_KT)
        kept = part(q, keys, values, bias_KT)
    fitted = METHODS[settings.method](region, rest, kept, values, settings)
    dtype = k_KMD.dtype
    return Slots(keep_KT, keys.to(dtype), fitted.values_KTD.to(dtype), bias_KT, fitted.residual_K)


def _choose(region: Gist, q: Tensor, k_KRD: Tensor, t: int, settings: Settings) -> tuple[Tensor, Tensor | None]:
    """The columns that stay, from the region's start, and -inf for those only there to fill up a smaller head."""
    if t >= region.columns or settings.method == "delete":
        return newest(region.square_KC, t), None
    if settings.select == "omp":
        return omp((q @ k_KRD.mT).softmax(-1), t), None
    scores_KR = score(region)
    if settings.uniform or not t:
        return top(scores_KR, t, settings.recent), None
    return _ragged(scores_KR, t, settings.recent)


def _ragged(scores_KR: Tensor, t: int, recent: int) -> tuple[Tensor, Tensor | None]:
    """Heads with slots of their own number, filled up to the largest with columns that a bias of -inf hides."""
    count_K = budgets(scores_KR, t, max(1, t // 4))
    most = int(count_K.max())
    flat = [
        torch.nn.functional.pad(top(s, int(c), recent), (0, most - int(c)))
        for s, c in zip(scores_KR.flatten(0, -2), count_K.flatten(), strict=True)
    ]
    chosen_KT = torch.stack(flat).view(*scores_KR.shape[:-1], most)
    filled_KT = torch.arange(most, device=scores_KR.device) >= count_K[..., None]
    return chosen_KT, _hidden(filled_KT)


def _hidden(filled_KT: Tensor) -> Tensor | None:
    """The bias that hides columns; none where there are none."""
    if not filled_KT.any():
        return None
    return torch.zeros(filled_KT.shape, device=filled_KT.device).masked_fill(filled_KT, -torch.inf)


def _match(region: Gist, rest: Gist, kept: Part, values: Tensor, settings: Settings) -> Fit:
    """Values fitted; what is kept whole stays as it is."""
    if kept.columns in (0, region.columns):
        return untouched(region, rest, kept, values)
    return fit(region, rest, kept, values, settings.ridge)


def _evict(region: Gist, rest: Gist, kept: Part, values: Tensor, _: Settings) -> Fit:
    """The same selection, values untouched."""
    return untouched(region, rest, kept, values)


METHODS: dict[str, Callable[[Gist, Gist, Part, Tensor, Settings], Fit]] = {
    "match": _match,
    "evict": _evict,
    "delete": _evict,
}
"""What becomes of the values of the kept keys."""


def carried(size: int, head: int, tail: int) -> list[Region]:
    """The stretches of a text of so many tokens that are read again by `delete_reread`: its head and its tail.

    carried(10, 2, 3) is [(0, 2), (7, 10)]; where they meet, all of it: carried(4, 2, 3) is [(0, 4)].
    """
    if head + tail >= size:
        return [(0, size)] if size else []
    return [stretch for stretch in ((0, head), (size - tail, size)) if stretch[0] < stretch[1]]
