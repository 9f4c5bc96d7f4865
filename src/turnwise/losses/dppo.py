"""dppo: the policy gradient without the tokens whose probability has already moved far enough the wanted way."""

from __future__ import annotations

from torch import Tensor

from turnwise.config.loss import DppoConfig
from turnwise.losses.tokens import Result, Tokens


def dppo(logp_E: Tensor, tokens: Tokens, config: DppoConfig) -> Result:
    """kept * -adv_tau*A*r + kl_tau*(logp - sampler_logp)^2, with r the importance ratio."""
    shift = logp_E - tokens.sampler_logp_E
    moved = (logp_E.exp() - tokens.sampler_logp_E.exp()).detach()
    up = tokens.advantage_E > 0
    masked_high = up & (moved > config.high)
    masked_low = ~up & (moved < -config.low)
    kept = ~(masked_high | masked_low)
    policy = -config.adv_tau * tokens.advantage_E * shift.clamp(-20.0, 20.0).exp() * kept
    loss = policy + config.kl_tau * shift.square()
    sums = {"policy/masked_high": masked_high.float().sum(), "policy/masked_low": masked_low.float().sum()}
    return Result((loss * tokens.weight_E).sum(), sums)
