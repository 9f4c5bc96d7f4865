"""What each loss may be told; `[loss] type = "..."` chooses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.config.section import Section

NonNegative = Annotated[float, Field(ge=0.0)]


class Options(Section):
    """What any loss may add."""

    entropy: NonNegative = 0.0
    """Reward for the exact entropy of the distribution each token was drawn from."""


class DppoConfig(Options):
    """Drops tokens whose probability has already moved the wanted way by more than a bound."""

    type: Literal["dppo"] = "dppo"
    """Chooses this loss."""
    low: NonNegative = 0.2
    """With a negative advantage, drop once the probability fell by more than this."""
    high: NonNegative = 0.2
    """With a positive advantage, drop once the probability rose by more than this."""
    adv_tau: NonNegative = 1.0
    """Weight of the policy term."""
    kl_tau: NonNegative = 1e-3
    """Weight of the squared log-ratio."""


class GrpoConfig(Options):
    """Clipped importance ratios."""

    type: Literal["grpo"] = "grpo"
    """Chooses this loss."""
    low: NonNegative = 0.2
    """Lower clip of the ratio: 1 - low."""
    high: NonNegative = 0.28
    """Upper clip of the ratio: 1 + high."""


class SftConfig(Options):
    """Cross-entropy on sampled tokens; rewards play no part."""

    type: Literal["sft"] = "sft"
    """Chooses this loss."""


LossConfig = Annotated[DppoConfig | GrpoConfig | SftConfig, Field(discriminator="type")]
