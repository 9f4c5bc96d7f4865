"""cispo: every token keeps its policy gradient, weighed by a capped ratio."""

from __future__ import annotations

from torch import Tensor

from turnwise.config.loss import CispoConfig
from turnwise.losses.tokens import Result, Tokens, log_ratio


def cispo(logp_E: Tensor, tokens: Tokens, config: CispoConfig) -> Result:
    """-min(r, cap)*A*logp, where the weight has no gradient."""
    ratio_E = log_ratio(logp_E, tokens).exp().detach()
    loss = -ratio_E.clamp(max=config.cap) * tokens.advantage_E * logp_E
    return Result((loss * tokens.weight_E).sum(), {"policy/clip_high": (ratio_E > config.cap).float()})
