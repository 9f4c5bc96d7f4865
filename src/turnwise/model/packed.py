"""A policy that only samples, made of another's parameters: linear layers on the CPU multiply by packed copies.

A packed copy is the weight in the blocks the product wants, which makes products of few rows two to three times as fast
and, in fp32, those of many too. A row's result then does not depend on how many rows there are. Copies follow their
weight: one that was changed in place is packed again before it is next used.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.model.load import Policy

ROWS = 32
"""Blocks are laid out for products of so many rows; they suit others as well."""
DTYPES = (torch.float32, torch.bfloat16)
UNPACKED = (0, -1)

_pack = torch.ops.mkldnn._reorder_linear_weight
_product = torch.ops.mkldnn._linear_pointwise


class PackedLinear(nn.Module):
    """What an nn.Linear computes, without gradient; the linear layer itself stays the owner of its numbers."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.state = UNPACKED
        self.packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.state != _state(self.linear.weight):
            self.pack()
        single = x.numel() == x.shape[-1]
        rows = x.expand(2, *x.shape) if single else x  # one row alone would be summed in another order
        out: Tensor = _product(rows, self.packed, self.linear.bias, "none", [], "")
        return out[0] if single else out

    def pack(self) -> None:
        """Take the weight as it is now."""
        weight = self.linear.weight.detach()
        self.state, self.packed = _state(weight), _pack(weight, ROWS)

    def __getattr__(self, name: str) -> Any:
        """Whatever a model asks of its linear layer, such as its weight's dtype."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("linear"), name)


def _state(weight: Tensor) -> tuple[int, int]:
    """Where a weight lies and how often it was changed in place."""
    return weight.data_ptr(), weight._version


def sampler(policy: Policy) -> Policy:
    """The policy with packed linear layers; the policy itself where nothing would be gained (not on a CPU)."""
    if policy.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return policy
    return replace(policy, model=_twin(policy.model))


def forget(policy: Policy) -> None:
    """Pack all weights again before they are next used: changes made through `.data` leave no trace of themselves."""
    for module in policy.model.modules():
        if isinstance(module, PackedLinear):
            module.state = UNPACKED


def _twin(model: Any) -> Any:
    """Another tree of modules over the same parameters, buffers and config."""
    shared = [*model.parameters(), *model.buffers(), model.config]
    twin = deepcopy(model, {id(one): one for one in shared})
    for parent in list(twin.modules()):
        for name, child in list(parent.named_children()):
            plain = type(child) is nn.Linear and type(child.weight) is nn.Parameter
            if plain and child.weight.dtype in DTYPES:
                setattr(parent, name, PackedLinear(child))
    return twin
