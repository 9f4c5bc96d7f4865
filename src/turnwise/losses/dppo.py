"""dppo: the policy gradient without the tokens whose probability has already moved far enough the wanted way."""

from __future__ import annotations

from torch import Tensor

from turnwise.config.loss import DppoConfig
from turnwise.losses.region import masked
from turnwise.losses.tokens import Result, Tokens, log_ratio


def dppo(logp_E: Tensor, tokens: Tokens, config: DppoConfig) -> Result:
    """kept * -adv_tau*A*r + kl_tau*(logp - sampler_logp)^2, with r the importance ratio."""
    drop = masked(logp_E, tokens, tokens.advantage_E, config.low, config.high)
    policy = -config.adv_tau * tokens.advantage_E * log_ratio(logp_E, tokens).exp() * drop.kept_E
    loss = policy + config.kl_tau * (logp_E - tokens.sampler_logp_E).square()
    return Result((loss * tokens.weight_E).sum(), drop.marks)
