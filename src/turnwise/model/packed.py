"""A policy that only samples, made of another's parameters: linear layers on the CPU multiply by packed copies.

A packed copy is the weight in the blocks the product wants, which makes products of few rows two to three times as fast
and, in fp32, those of many too. A row's result then does not depend on how many rows there are. Layers of one input,
such as a query's, key's and value's, are one product. Copies follow their weights: one that was changed in place is
packed again before it is next used.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.model.attention import causal
from turnwise.model.load import Policy, probe

ROWS = 32
"""Blocks are laid out for products of so many rows; they suit others as well."""
DTYPES = (torch.float32, torch.bfloat16)

_pack = torch.ops.mkldnn._reorder_linear_weight
_product = torch.ops.mkldnn._linear_pointwise


class Packing:
    """Linear layers that are given one input, as one product."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        self.weights: list[Tensor] = [linear.weight for linear in linears]
        self.biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
        self.watched = [*self.weights, *self.biases]
        self.widths = [linear.out_features for linear in linears]
        self.state: list[tuple[int, int]] = []
        self.packed: Tensor | None = None
        self.bias: Tensor | None = None
        self.given: Tensor | None = None
        self.parts: list[Tensor] = []

    def part(self, x: Tensor, number: int) -> Tensor:
        """What one of the layers makes of x: the first that is asked computes for all."""
        if len(self.widths) == 1:
            return self._all(x)
        if self.given is not x:
            self.given, self.parts = x, list(self._all(x).split_with_sizes(self.widths, -1))
        out = self.parts[number]
        if number == len(self.parts) - 1:
            self.given, self.parts = None, []
        return out

    def _all(self, x: Tensor) -> Tensor:
        if self.state != [(w.data_ptr(), w._version) for w in self.watched]:
            self._renew()
        single = x.numel() == x.shape[-1]
        rows = x.expand(2, *x.shape) if single else x  # one row alone would be summed in another order
        out: Tensor = _product(rows, self.packed, self.bias, "none", [], "")
        return out[0] if single else out

    @torch.no_grad()
    def _renew(self) -> None:
        self.state = [(w.data_ptr(), w._version) for w in self.watched]
        self.packed = _pack(torch.cat(self.weights) if len(self.weights) > 1 else self.weights[0].detach(), ROWS)
        self.bias = torch.cat(self.biases) if self.biases else None


class PackedLinear(nn.Module):
    """What an nn.Linear computes, without gradient; the linear layer itself stays the owner of its numbers."""

    def __init__(self, linear: nn.Linear, packing: Packing | None = None, number: int = 0) -> None:
        super().__init__()
        self.linear, self.packing, self.number = linear, packing or Packing([linear]), number

    def forward(self, x: Tensor) -> Tensor:
        return self.packing.part(x, self.number)

    def __getattr__(self, name: str) -> Any:
        """Whatever a model asks of its linear layer, such as its weight's dtype."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("linear"), name)


def sampler(policy: Policy) -> Policy:
    """The policy with packed linear layers; the policy itself where nothing would be gained (not on a CPU)."""
    if policy.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return policy
    return replace(policy, model=_twin(policy))


def forget(policy: Policy) -> None:
    """Pack all weights again before they are next used: changes made through `.data` leave no trace of themselves."""
    for module in policy.model.modules():
        if isinstance(module, PackedLinear):
            module.packing.state = []


def _twin(policy: Policy) -> Any:
    """Another tree of modules over the same parameters, buffers and config."""
    model = policy.model
    shared = [*model.parameters(), *model.buffers(), model.config]
    names = {module: name for name, module in model.named_modules() if _plain(module)}
    together = [[names.pop(module) for module in group] for group in siblings(policy, list(names))]
    twin = deepcopy(model, {id(one): one for one in shared})
    for group in [*together, *([name] for name in names.values())]:
        linears = [twin.get_submodule(name) for name in group]
        packing = Packing(linears)
        for number, (name, linear) in enumerate(zip(group, linears, strict=True)):
            parent, _, child = name.rpartition(".")
            setattr(twin.get_submodule(parent), child, PackedLinear(linear, packing, number))
    return twin


def _plain(module: nn.Module) -> bool:
    plain = type(module) is nn.Linear and type(module.weight) is nn.Parameter
    return plain and module.weight.dtype in DTYPES


@torch.inference_mode()
def siblings(policy: Policy, linears: Sequence[nn.Module]) -> list[list[nn.Module]]:
    """Linear layers that, one after the other, are given the same input, seen in a forward pass of a few tokens."""
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        calls.append((module, args[0], args[0].clone()))

    hooks = [linear.register_forward_pre_hook(note) for linear in linears]
    try:
        policy.hidden(*probe(policy), causal)
    finally:
        for hook in hooks:
            hook.remove()
    groups: list[list[nn.Module]] = []
    for n, (module, x, was) in enumerate(calls):
        same = n > 0 and x is calls[n - 1][1] and torch.equal(was, calls[n - 1][2])
        alike = same and (module.bias is None) == (groups[-1][0].bias is None)
        if alike and module not in groups[-1]:
            groups[-1].append(module)
        else:
            groups.append([module])
    return _once(groups)


def _once(groups: Sequence[list[nn.Module]]) -> list[list[nn.Module]]:
    """Groups of several, without layers that were called more than once."""
    called = [module for group in groups for module in group]
    return [group for group in groups if len(group) > 1 and all(called.count(module) == 1 for module in group)]
