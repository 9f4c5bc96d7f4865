"""Attention over some of the columns alone, and over two such parts together, joined by the logarithms of their masses.

Every exponential is relative to the largest logit of its own part, so that no part underflows as a whole.
Shapes as in fit.py; C columns of a part.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = {"cpu": 2**18, "cuda": 2**26}
"""Logits that are held at once: what stays in a core's cache, or fills a GPU without filling its memory."""


class Part(NamedTuple):
    """Attention `p` over this part alone, the logarithm of its `mass`, and what it gives."""

    p_KNC: Tensor
    mass_KN1: Tensor
    out_KND: Tensor

    @property
    def columns(self) -> int:
        return int(self.p_KNC.shape[-1])


class Gist(NamedTuple):
    """The same with attention itself thrown away, but for its squares summed over queries."""

    square_KC: Tensor
    mass_KN1: Tensor
    out_KND: Tensor

    @property
    def columns(self) -> int:
        return int(self.square_KC.shape[-1])


def part(q_KND: Tensor, k_KCD: Tensor, v_KCD: Tensor, bias_KC: Tensor | None = None) -> Part:
    """Look at some columns; queries arrive scaled, and `bias` is added to the logits."""
    logits_KNC = q_KND @ k_KCD.mT
    if bias_KC is not None:
        logits_KNC = logits_KNC + bias_KC[..., None, :]
    mass_KN1 = logits_KNC.logsumexp(-1, keepdim=True)
    p_KNC = logits_KNC.softmax(-1)
    return Part(p_KNC, mass_KN1, p_KNC @ v_KCD)


def gist(q_KND: Tensor, k_KCD: Tensor, v_KCD: Tensor) -> Gist:
    """Look at some columns, a block of queries at a time: what would be N x C numbers a head never leaves the cache."""
    lead, (n, d), columns = q_KND.shape[:-2], q_KND.shape[-2:], k_KCD.shape[-2]
    if not columns:
        return Gist(k_KCD[..., 0], q_KND.new_full((*lead, n, 1), -torch.inf), q_KND.new_zeros(*lead, n, d))
    q, k, v = (x.flatten(0, -3) for x in (q_KND, k_KCD, v_KCD))
    rows = max(16, BLOCK[q.device.type] // (len(q) * columns))
    square, masses, outs = k.new_zeros(len(k), 1, columns), [q[:, :0, :1]], [v[:, :0]]
    buffer = q.new_empty(len(q), min(rows, n), columns)
    for block in q.split(rows, 1):
        logits = torch.bmm(block, k.mT, out=buffer[:, : block.shape[1]])
        top = logits.amax(-1, keepdim=True)
        e = logits.sub_(top).exp_()
        z = e.sum(-1, keepdim=True)
        outs.append(torch.bmm(e, v).div_(z))
        masses.append(top + z.log())
        square.baddbmm_(z.mT.square().reciprocal_(), e.square_())
    mass, out = torch.cat(masses, 1), torch.cat(outs, 1)
    return Gist(square.view(*lead, columns), mass.view(*lead, n, 1), out.view(*lead, n, d))


def join(a: Part | Gist, b: Part | Gist) -> tuple[Tensor, Tensor]:
    """The mass and the output of two parts together: masses 3 and 1 weigh their outputs with .75 and .25."""
    mass_KN1 = torch.logaddexp(a.mass_KN1, b.mass_KN1)
    out_KND = [p.out_KND * (p.mass_KN1 - mass_KN1).exp() for p in (a, b) if p.columns]
    return mass_KN1, sum(out_KND[1:], out_KND[0]) if out_KND else a.out_KND
