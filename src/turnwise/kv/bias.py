"""A weight for each kept key, stored as the logarithm that is added to its logits: it carries the mass of lost ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from turnwise.kv.part import Gist, Part

LEAST, MOST = math.exp(-7), math.exp(7)


def log_weights(kept: Part, inside: Gist, visible_KN1: Tensor, steps: int = 300) -> Tensor:
    """log of argmin |E_keep w - Z_R|^2 over w in [e^-7, e^7], by accelerated projected gradient.

    E and Z_R are relative to all that is `visible` to each query, so that one that hardly looks into the region has
    little say. One key left of two equal ones: w = 2, so log 2.
    """
    e_KNT = kept.p_KNC * (kept.mass_KN1 - visible_KN1).exp()
    gram_KTT, want_KT1 = e_KNT.mT @ e_KNT, e_KNT.mT @ (inside.mass_KN1 - visible_KN1).exp()
    slope_K11 = gram_KTT.abs().sum(-1, keepdim=True).amax(-2, keepdim=True) + torch.finfo(gram_KTT.dtype).tiny
    w_KT1 = ahead_KT1 = torch.ones_like(want_KT1)
    for step in range(steps):
        new_KT1 = (ahead_KT1 - (gram_KTT @ ahead_KT1 - want_KT1) / slope_K11).clamp(LEAST, MOST)
        ahead_KT1 = new_KT1 + step / (step + 3) * (new_KT1 - w_KT1)
        w_KT1 = new_KT1
    return w_KT1.squeeze(-1).log()
