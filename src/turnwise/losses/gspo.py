"""gspo: clipped importance ratios of whole replies."""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.config.loss import GspoConfig
from turnwise.losses.clip import clipped
from turnwise.losses.tokens import Result, Tokens


def gspo(logp_E: Tensor, tokens: Tokens, config: GspoConfig) -> Result:
    """The clipped surrogate of exp(mean log-ratio of the token's reply), whose gradient reaches the whole reply."""
    shift_E = logp_E - tokens.sampler_logp_E
    mean_E = _mean(shift_E, tokens.sequence_E).clamp(-20.0, 20.0)
    return clipped(mean_E.exp(), tokens, config.low, config.high)


def _mean(values_E: Tensor, sequence_E: Tensor) -> Tensor:
    """Each entry's mean over its sequence: values 1 3 5, sequences 0 0 1 give 2 2 5."""
    sums = torch.zeros_like(values_E).index_add(0, sequence_E, values_E)
    counts = torch.zeros_like(values_E).index_add(0, sequence_E, torch.ones_like(values_E))
    return (sums / counts.clamp(min=1.0))[sequence_E]
