"""What a model writes for each token, seen in a forward pass of one."""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.engine.compact import Rotary
from turnwise.engine.pool import Shape
from turnwise.model import Policy
from turnwise.model.attention import causal


@torch.inference_mode()
def seen(policy: Policy) -> tuple[Shape, Rotary | None]:
    """The shape of its cache, and how its queries are turned, if they can be."""
    found: list[tuple[Tensor, Tensor, float]] = []

    def spy(layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        found.append((q, k, scale))
        return causal(layer, q, k, v, scale)

    zero = torch.zeros(1, 1, dtype=torch.long, device=policy.device)
    policy.hidden(zero, zero, spy)
    q, k, scale = found[0]
    shape = Shape(len(found), k.shape[1], q.shape[1] // k.shape[1], k.shape[3], k.dtype, k.device)
    inv_freq = getattr(getattr(policy.model.base_model, "rotary_emb", None), "inv_freq", None)
    return shape, None if inv_freq is None else Rotary(scale, inv_freq)
