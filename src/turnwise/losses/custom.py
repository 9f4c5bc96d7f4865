"""custom: a loss of your own, found by its place and held to what every loss returns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from turnwise.config.loss import CustomConfig
from turnwise.errors import DataError
from turnwise.imports import function
from turnwise.losses.tokens import Result, Tokens

EXPECTED = "expected turnwise.losses.Result(loss, marks): a summed loss, and one number a token under each metric"


def custom(config: CustomConfig) -> Callable[[Tensor, Tokens], Result]:
    """The function with its keyword arguments filled in, each of its results checked."""
    own = partial(function(config.import_path, "loss.import_path"), **config.kwargs)
    return partial(_checked, own=own, name=config.import_path)


def _checked(logp_E: Tensor, tokens: Tokens, own: Callable[..., Any], name: str) -> Result:
    result = own(logp_E, tokens)
    if not isinstance(result, Result):
        raise DataError(f"loss {name}: found {type(result).__name__}; {EXPECTED}")
    if not isinstance(result.loss, Tensor) or result.loss.dim():
        found = f"shape {tuple(result.loss.shape)}" if isinstance(result.loss, Tensor) else type(result.loss).__name__
        raise DataError(f"loss {name}: found a loss of {found}; {EXPECTED}")
    for metric, values in result.marks.items():
        if not isinstance(values, Tensor) or values.shape != logp_E.shape:
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise DataError(f"loss {name}: found {metric} of shape {shape} for {len(logp_E)} tokens; {EXPECTED}")
    return result
