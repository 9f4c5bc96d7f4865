"""Attention over some of the columns alone, and over two such parts together, joined by the logarithms of their masses.

Every exponential is relative to the largest logit of its own part, so that no part underflows as a whole.
Shapes as in fit.py; C columns of a part.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Part(NamedTuple):
    """`e` are exponentials relative to each query's largest logit, `z` their sum, `mass` its logarithm with that logit,
    `out` what attention over this part alone gives."""

    e_KNC: Tensor
    z_KN1: Tensor
    mass_KN1: Tensor
    out_KND: Tensor


def part(q_KND: Tensor, k_KCD: Tensor, v_KCD: Tensor, bias_KC: Tensor | None = None) -> Part:
    """Look at some columns; queries arrive scaled, and `bias` is added to the logits."""
    logits_KNC = q_KND @ k_KCD.mT
    if not logits_KNC.shape[-1]:
        empty = logits_KNC.sum(-1, keepdim=True)
        return Part(logits_KNC, empty, empty - torch.inf, q_KND.new_zeros(*q_KND.shape[:-1], v_KCD.shape[-1]))
    if bias_KC is not None:
        logits_KNC = logits_KNC + bias_KC[..., None, :]
    top_KN1 = logits_KNC.amax(-1, keepdim=True)
    e_KNC = logits_KNC.sub_(top_KN1).exp_()
    z_KN1 = e_KNC.sum(-1, keepdim=True)
    return Part(e_KNC, z_KN1, top_KN1 + z_KN1.log(), e_KNC @ v_KCD / z_KN1)


def join(a: Part, b: Part) -> tuple[Tensor, Tensor]:
    """The mass and the output of two parts together: masses 3 and 1 weigh their outputs with .75 and .25."""
    mass_KN1 = torch.logaddexp(a.mass_KN1, b.mass_KN1)
    out_KND = [p.out_KND * (p.mass_KN1 - mass_KN1).exp() for p in (a, b) if p.e_KNC.shape[-1]]
    return mass_KN1, sum(out_KND[1:], out_KND[0]) if out_KND else a.out_KND
