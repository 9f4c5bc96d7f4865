"""A loss config to the function it names, with the config filled in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from turnwise.config.loss import CustomConfig, LossConfig
from turnwise.losses.cispo import cispo
from turnwise.losses.custom import custom
from turnwise.losses.dppo import dppo
from turnwise.losses.grpo import grpo
from turnwise.losses.gspo import gspo
from turnwise.losses.opd import opd
from turnwise.losses.sft import sft
from turnwise.losses.tokens import Result, Tokens

Loss = Callable[[Tensor, Tokens], Result]
"""(logp_E, tokens) -> summed loss and marks of single tokens"""

LOSSES: dict[str, Callable[..., Result]] = {f.__name__: f for f in (dppo, grpo, gspo, cispo, opd, sft)}
"""By the config's `type`."""


def choose(config: LossConfig) -> Loss:
    return custom(config) if isinstance(config, CustomConfig) else partial(LOSSES[config.type], config=config)
