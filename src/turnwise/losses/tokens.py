"""What a loss reads and returns: arrays over entries in, a sum and marks of single tokens out; the caller divides."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Tokens(NamedTuple):
    """Numbers of a row's entries, [E] each. `sequence_E` numbers replies: equal for tokens sampled in one turn of one
    trajectory, below E, and never split over rows."""

    advantage_E: Tensor
    sampler_logp_E: Tensor
    weight_E: Tensor
    sequence_E: Tensor
    teacher_logp_E: Tensor | None = None


class Result(NamedTuple):
    """The summed loss of each token times its weight, and what is to be known of each token: a number a token under a
    metric's name, reported as its mean over the batch's tokens."""

    loss: Tensor
    marks: dict[str, Tensor]


def log_ratio(logp_E: Tensor, tokens: Tokens) -> Tensor:
    """log(p / p_sampler), kept within +-20 so that its exponential is finite."""
    return (logp_E - tokens.sampler_logp_E).clamp(-20.0, 20.0)
