"""A loss config to the function it names, with the config filled in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from turnwise.config.loss import DppoConfig, GrpoConfig, SftConfig
from turnwise.losses.dppo import dppo
from turnwise.losses.grpo import grpo
from turnwise.losses.sft import sft
from turnwise.losses.tokens import Result, Tokens

Loss = Callable[[Tensor, Tokens], Result]
"""(logp_E, tokens) -> summed loss and sums of metrics"""


def choose(config: DppoConfig | GrpoConfig | SftConfig) -> Loss:
    match config:
        case DppoConfig():
            return partial(dppo, config=config)
        case GrpoConfig():
            return partial(grpo, config=config)
        case SftConfig():
            return partial(sft, config=config)
