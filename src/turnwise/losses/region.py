"""Trust region by probability: which tokens have already moved the wanted way by more than a bound."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from turnwise.losses.tokens import Tokens


class Masked(NamedTuple):
    """Tokens to drop: those that rose enough, and those that fell enough."""

    high_E: Tensor
    low_E: Tensor

    @property
    def kept_E(self) -> Tensor:
        return ~(self.high_E | self.low_E)

    @property
    def marks(self) -> dict[str, Tensor]:
        return {"policy/masked_high": self.high_E.float(), "policy/masked_low": self.low_E.float()}


def masked(logp_E: Tensor, tokens: Tokens, signal_E: Tensor, low: float, high: float) -> Masked:
    """One-sided: a positive signal drops at p - p_sampler > high, any other at < -low.

    Signal +1, p from 0.5 to 0.8, high 0.2: dropped. Signal -1, the same move: kept, since the loss pushes back.
    """
    moved_E = (logp_E.exp() - tokens.sampler_logp_E.exp()).detach()
    up_E = signal_E > 0
    return Masked(up_E & (moved_E > high), ~up_E & (moved_E < -low))
