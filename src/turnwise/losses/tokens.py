"""What a loss reads and returns: arrays over entries in, a sum and sums of metrics out; the caller divides."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Tokens(NamedTuple):
    """Numbers of the entries, [E] each."""

    advantage_E: Tensor
    sampler_logp_E: Tensor
    weight_E: Tensor


class Result(NamedTuple):
    """The summed loss, and sums over entries of what its metrics average."""

    loss: Tensor
    sums: dict[str, Tensor]
