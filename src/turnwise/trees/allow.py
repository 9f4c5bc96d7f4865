"""What a user's filter lets through: a boolean mask a turn over prompt and completion, checked to the letter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.config.echo import EchoFilter
from turnwise.errors import DataError
from turnwise.imports import function
from turnwise.types import Trajectory

Mask = NDArray[np.bool_]
Allow = Callable[[Trajectory], list[Mask]]
"""trajectory -> one mask a turn, prompt and completion long"""


def allow(config: EchoFilter) -> Allow:
    """The function with its keyword arguments filled in, each of its answers checked. What it raises rises."""
    own = partial(function(config.import_path, "env.echo.filter.import_path"), **config.kwargs)
    return partial(_checked, own=own, name=config.import_path)


def _checked(trajectory: Trajectory, own: Callable[..., Any], name: str) -> list[Mask]:
    answer, turns = own(trajectory), trajectory.turns
    about = f"echo filter {name}"
    if not isinstance(answer, list | tuple):
        raise DataError(
            f"{about}: found {type(answer).__name__}; expected a list of boolean masks, one for each of {len(turns)} "
            "turns"
        )
    if len(answer) != len(turns):
        raise DataError(f"{about}: found {len(answer)} masks for {len(turns)} turns; expected one a turn")
    return [
        _mask(f"{about}, turn {index}", mask, len(turn.prompt_ids), len(turn.completion_ids))
        for index, (mask, turn) in enumerate(zip(answer, turns, strict=True))
    ]


def _mask(about: str, mask: Any, prompt: int, sampled: int) -> Mask:
    """One turn's mask as an array, if it is one."""
    whole = f"{prompt + sampled} booleans ({prompt} prompt tokens + {sampled} sampled)"
    if not isinstance(mask, list | tuple | np.ndarray):
        raise DataError(f"{about}: found {type(mask).__name__}; expected a list or a NumPy array of {whole}")
    if isinstance(mask, np.ndarray) and mask.ndim != 1:
        raise DataError(f"{about}: found an array of shape {mask.shape}; expected {whole}")
    if len(mask) != prompt + sampled:
        raise DataError(f"{about}: found {len(mask)} entries; expected {whole}")
    dtype = mask.dtype if isinstance(mask, np.ndarray) else None
    odd = [] if dtype == np.bool_ else [n for n, m in enumerate(mask) if not isinstance(m, bool | np.bool_)]
    if odd or (dtype is not None and dtype != np.bool_):
        found = f"dtype {dtype}" if dtype is not None else f"{mask[odd[0]]!r} at {odd[0]}"
        raise DataError(f"{about}: found {len(mask)} entries with {found}; expected {whole}")
    return np.array(mask, np.bool_)
