"""Divergence from the model a run began with."""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.types import Entries


def reference_kl(logp_E: Tensor, e: Entries) -> Tensor:
    """Sum of exp(d) - d - 1 with d = ref_logp - logp: 0 where the two agree, and its gradient pulls them together."""
    assert e.ref_logp is not None, "reference_kl without a reference's log-probabilities"
    apart_E = (torch.from_numpy(e.ref_logp).to(logp_E.device) - logp_E).clamp(-20.0, 20.0)
    return (apart_E.exp() - apart_E - 1.0).sum()
