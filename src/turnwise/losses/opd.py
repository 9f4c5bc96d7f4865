"""opd: distillation on own samples; where a teacher finds a token likelier, it is made likelier."""

from __future__ import annotations

from torch import Tensor

from turnwise.config.loss import OpdConfig
from turnwise.losses.region import masked
from turnwise.losses.tokens import Result, Tokens, log_ratio


def opd(logp_E: Tensor, tokens: Tokens, config: OpdConfig) -> Result:
    """kept * -(teacher_logp - logp)*r, where the difference has no gradient and takes the place of an advantage."""
    assert tokens.teacher_logp_E is not None, "opd without a teacher's log-probabilities"
    signal_E = (tokens.teacher_logp_E - logp_E).detach()
    drop = masked(logp_E, tokens, signal_E, config.low, config.high)
    loss = -signal_E * log_ratio(logp_E, tokens).exp() * drop.kept_E
    return Result((loss * tokens.weight_E).sum(), {**drop.marks, "policy/teacher_kl": -signal_E})
