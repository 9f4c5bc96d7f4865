"""grpo: clipped importance ratios."""

from __future__ import annotations

from torch import Tensor

from turnwise.config.loss import GrpoConfig
from turnwise.losses.clip import clipped
from turnwise.losses.tokens import Result, Tokens, log_ratio


def grpo(logp_E: Tensor, tokens: Tokens, config: GrpoConfig) -> Result:
    """The clipped surrogate of each token's own ratio."""
    return clipped(log_ratio(logp_E, tokens).exp(), tokens, config.low, config.high)
