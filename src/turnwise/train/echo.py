"""Cross-entropy on what the environment wrote: no ratio, no trust region and no divergence, since nobody sampled it."""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.train.tally import Tally
from turnwise.types import Echo


def echo_loss(echo: Echo, logp_M: Tensor, tally: Tally) -> Tensor:
    """Sum of -weight x logp; the tally also hears how well each role and tool was foretold."""
    loss = -(torch.from_numpy(echo.weight).to(logp_M.device) * logp_M).sum()
    nll_M = -logp_M.detach()
    tally.add(len(echo), {"loss/echo": loss.detach()})
    for name, mask in echo.named().items():
        of = torch.from_numpy(mask).to(logp_M.device)
        tally.add(int(mask.sum()), {f"echo/nll/{name}": nll_M[of].sum()})
    return loss
