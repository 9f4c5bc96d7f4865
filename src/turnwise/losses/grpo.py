"""grpo: clipped importance ratios."""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.config.loss import GrpoConfig
from turnwise.losses.tokens import Result, Tokens


def grpo(logp_E: Tensor, tokens: Tokens, config: GrpoConfig) -> Result:
    """-min(r*A, clip(r, 1-low, 1+high)*A), with r the importance ratio."""
    ratio = (logp_E - tokens.sampler_logp_E).clamp(-20.0, 20.0).exp()
    clipped = ratio.clamp(1.0 - config.low, 1.0 + config.high)
    loss = -torch.minimum(ratio * tokens.advantage_E, clipped * tokens.advantage_E)
    up, down = tokens.advantage_E > 0, tokens.advantage_E < 0
    sums = {
        "policy/clip_high": (up & (ratio > 1.0 + config.high)).float().sum(),
        "policy/clip_low": (down & (ratio < 1.0 - config.low)).float().sum(),
    }
    return Result((loss * tokens.weight_E).sum(), sums)
