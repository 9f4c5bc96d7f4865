"""A row's entries to the tensors a loss reads."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.losses import Tokens
from turnwise.types import Entries, Floats


def numbers(e: Entries, tis_cap: float, device: torch.device) -> Tokens:
    """With `tis_cap`, ratios are against the start of the step, and weights hold what sampler and trainer differ by."""
    base, weight = e.sampler_logp, e.weight
    if tis_cap:
        assert e.start_logp is not None, "tis_cap without the log-probabilities at the start of the step"
        base, weight = e.start_logp, weight * np.exp(np.minimum(e.start_logp - e.sampler_logp, math.log(tis_cap)))
    teacher = None if e.teacher_logp is None else _tensor(e.teacher_logp, device)
    return Tokens(
        advantage_E=_tensor(e.advantage, device),
        sampler_logp_E=_tensor(base, device),
        weight_E=_tensor(weight, device),
        sequence_E=_tensor(sequences(e), device),
        teacher_logp_E=teacher,
    )


def sequences(e: Entries) -> NDArray[np.int64]:
    """Number the replies of a row: trajectories 0 0 0 1, turns 2 2 4 2 give 0 0 1 2."""
    unit = e.trajectory.astype(np.int64) << 32 | e.turn
    found: NDArray[np.int64] = np.unique(unit, return_inverse=True)[1].astype(np.int64)
    return found


def _tensor(values: Floats | NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device)
