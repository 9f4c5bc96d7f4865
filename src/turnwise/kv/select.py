"""Which columns of a region stay: the newest, and of the rest those that score best.

Indices count from the region's start and rise. Shapes: K heads, R columns of the region, T slots, N queries.
"""

from __future__ import annotations

import torch
from torch import Tensor


def top(scores_KR: Tensor, t: int, recent: int) -> Tensor:
    """The r newest and the t - r best of the rest, r = min(recent, t // 2); of equals the older.

    Scores [5, 1, 3, 0], t 2, recent 32: r is 1, so columns 0 and 3 stay.
    """
    size = scores_KR.shape[-1]
    r = min(recent, t // 2)
    older = scores_KR[..., : size - r].argsort(dim=-1, descending=True, stable=True)[..., : t - r]
    newest = torch.arange(size - r, size, device=scores_KR.device).expand(*scores_KR.shape[:-1], -1)
    return torch.cat([older, newest], -1).sort(-1).values


def newest(like_KR: Tensor, t: int) -> Tensor:
    """The t newest columns, in every head."""
    size = like_KR.shape[-1]
    return torch.arange(size - t, size, device=like_KR.device).repeat(*like_KR.shape[:-1], 1)


def omp(p_KNR: Tensor, t: int, rounds: int = 32) -> Tensor:
    """Orthogonal matching pursuit, to be compared: in each round add the columns that best explain what is still
    missing of the mass of the region, then weigh all chosen ones anew."""
    gram_KRR, want_KR1 = p_KNR.mT @ p_KNR, p_KNR.sum(-2)[..., None]
    chosen = torch.empty(*want_KR1.shape[:-2], 0, dtype=torch.long, device=p_KNR.device)
    missing_KR1 = want_KR1
    for number in range(rounds):
        more = t * (number + 1) // rounds - t * number // rounds
        fresh_KR = missing_KR1.squeeze(-1).scatter(-1, chosen, -torch.inf)
        chosen = torch.cat([chosen, fresh_KR.topk(more, -1).indices], -1)
        missing_KR1 = want_KR1 - _explained(gram_KRR, want_KR1, chosen)
    return chosen.sort(-1).values


def _explained(gram_KRR: Tensor, want_KR1: Tensor, chosen_KT: Tensor) -> Tensor:
    """What the chosen columns, weighed by (slightly regularised) least squares, give of the wanted mass."""
    columns_KRT = gram_KRR.gather(-1, chosen_KT[..., None, :].expand(*gram_KRR.shape[:-1], -1))
    inner_KTT = columns_KRT.gather(-2, chosen_KT[..., None].expand(*chosen_KT.shape, chosen_KT.shape[-1]))
    ridge_KT = 1e-4 * inner_KTT.diagonal(dim1=-2, dim2=-1) + 1e-12
    factor = torch.linalg.cholesky(inner_KTT + torch.diag_embed(ridge_KT))
    return columns_KRT @ torch.cholesky_solve(want_KR1.gather(-2, chosen_KT[..., None]), factor)


def budgets(scores_KR: Tensor, t: int, least: int) -> Tensor:
    """Slots of each head, to be compared: t a head on average, where the best scores lie, none under `least`.

    Two heads with shares [.9, .1, 0] and [.4, .3, .3], t 1, least 1: one each; with t 2: one and three.
    """
    size = scores_KR.shape[-1]
    share_KR = scores_KR.sqrt() / scores_KR.sqrt().sum(-1, keepdim=True)
    ranked_KR = share_KR.sort(stable=True, dim=-1, descending=True).values
    ranked_KR[..., :least] = torch.inf
    places = ranked_KR.flatten().argsort(descending=True, stable=True)[: t * (scores_KR.numel() // size)]
    return torch.bincount(places // size, minlength=scores_KR.numel() // size).view(scores_KR.shape[:-1])
