"""The clipped surrogate that grpo takes token by token and gspo reply by reply."""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.losses.tokens import Result, Tokens


def clipped(ratio_E: Tensor, tokens: Tokens, low: float, high: float) -> Result:
    """-min(r*A, clip(r, 1-low, 1+high)*A)."""
    inside_E = ratio_E.clamp(1.0 - low, 1.0 + high)
    loss = -torch.minimum(ratio_E * tokens.advantage_E, inside_E * tokens.advantage_E)
    up_E, down_E = tokens.advantage_E > 0, tokens.advantage_E < 0
    marks = {
        "policy/clip_high": (up_E & (ratio_E > 1.0 + high)).float(),
        "policy/clip_low": (down_E & (ratio_E < 1.0 - low)).float(),
    }
    return Result((loss * tokens.weight_E).sum(), marks)
