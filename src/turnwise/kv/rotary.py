"""Rotary positions compose: a query that stands at one position is turned to another."""

from __future__ import annotations

import torch
from torch import Tensor


def turn(q_ND: Tensor, by_N: Tensor, inv_freq: Tensor) -> Tensor:
    """Turn each query by so many positions; the half-split layout, dimensions beyond 2 * len(inv_freq) untouched.

    A query computed at position 5 and turned by 3 is the one that position 8 would have given. Angles in fp64, since
    those of late positions are large.
    """
    half = len(inv_freq)
    angle = by_N.double()[..., None] * inv_freq.double().to(by_N.device)
    cos, sin = (x.to(device=q_ND.device, dtype=q_ND.dtype) for x in (angle.cos(), angle.sin()))
    a, b, rest = q_ND[..., :half], q_ND[..., half : 2 * half], q_ND[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)
