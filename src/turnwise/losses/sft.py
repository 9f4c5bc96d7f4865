"""sft: cross-entropy on the tokens; rewards play no part."""

from __future__ import annotations

from torch import Tensor

from turnwise.config.loss import SftConfig
from turnwise.losses.tokens import Result, Tokens


def sft(logp_E: Tensor, tokens: Tokens, config: SftConfig) -> Result:  # noqa: ARG001 - the shape all losses share
    """-logp."""
    return Result((-logp_E * tokens.weight_E).sum(), {})
