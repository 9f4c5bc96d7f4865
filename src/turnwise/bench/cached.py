"""A key/value cache of one sequence on a real model that can be compacted: what an engine does, in its plainest form.

Shapes: K key/value heads, G query heads of a group, M columns, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.functional import scaled_dot_product_attention as sdpa

from turnwise.kv.fit import Region
from turnwise.kv.methods import Slots, compact
from turnwise.kv.queries import Source, Stored
from turnwise.model import Policy
from turnwise.types import Settings


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer remembers; slots have no query, and `bias` is added to the logits of a column."""

    q_KGMD: Tensor
    k_KMD: Tensor
    v_KMD: Tensor
    bias_KM: Tensor | None = None


@dataclass(slots=True)
class Cache:
    """Columns of all layers. `asked_M` says which have queries, `position_M` where those stand; `next` comes next."""

    policy: Policy
    layers: list[Layer]
    asked_M: Tensor
    position_M: Tensor
    next: int = 0
    scale: float = 1.0

    @staticmethod
    def empty(policy: Policy) -> Cache:
        return Cache(policy, [], torch.zeros(0, dtype=torch.bool), torch.zeros(0, dtype=torch.long))

    @property
    def columns(self) -> int:
        return len(self.asked_M)

    def fork(self) -> Cache:
        """Another cache that goes on from here; tensors are never written to, so they are shared."""
        return replace(self, layers=list(self.layers))

    @torch.no_grad()
    def read(self, ids: list[int]) -> Tensor:
        """Append tokens; their hidden states [T, W]."""
        count, before = len(ids), self.columns
        places = torch.arange(self.next, self.next + count)

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
            self.scale = scale
            new = Layer(q[0].unflatten(0, (k.shape[1], -1)), k[0], v[0])
            layer = _append(self.layers[number], new) if before else new
            self.layers[number : number + 1] = [layer]
            keys, values = layer.k_KMD[None], layer.v_KMD[None]
            return sdpa(q, keys, values, _mask(layer, q), is_causal=not before, scale=scale, enable_gqa=True)

        hidden = self.policy.hidden(torch.tensor([ids]), places[None], attend)[0]
        self.asked_M = torch.cat([self.asked_M, torch.ones(count, dtype=torch.bool)])
        self.position_M = torch.cat([self.position_M, places])
        self.next += count
        return hidden

    def stored(self, number: int, inside: Region, again: Cache | None = None) -> Stored:
        """What reference queries of one layer may draw on."""
        layer = self.layers[number]
        rope = self.policy.model.base_model.rotary_emb.inv_freq
        second = None if again is None else again.layers[number].q_KGMD[..., self.columns :, :]
        places = (self.asked_M, self.position_M, inside, self.next)
        return Stored(layer.q_KGMD, layer.k_KMD, *places, rope, second, seed=number)

    @torch.no_grad()
    def compact(self, inside: Region, source: Source, settings: Settings, again: Cache | None = None) -> float:
        """Compact a region in every layer; the mean residual. `again` is this cache with the region read once more."""
        t, residual = settings.slots(inside[1] - inside[0]), 0.0
        for number, layer in enumerate(self.layers):
            queries = source(self.stored(number, inside, again), settings.per_slot * t)
            made = compact(queries, layer.k_KMD, layer.v_KMD, inside, self.scale, settings)
            self.layers[number] = _replaced(layer, inside, made)
            residual += float(made.residual_K.mean()) / len(self.layers)
        slots = self.layers[0].k_KMD.shape[-2] - (self.columns - (inside[1] - inside[0]))
        self.asked_M = _splice(self.asked_M, torch.zeros(slots, dtype=torch.bool), inside, -1)
        self.position_M = _splice(self.position_M, torch.zeros(slots, dtype=torch.long), inside, -1)
        return residual


def _append(layer: Layer, new: Layer) -> Layer:
    q, k, v = (
        torch.cat(pair, -2) for pair in ((layer.q_KGMD, new.q_KGMD), (layer.k_KMD, new.k_KMD), (layer.v_KMD, new.v_KMD))
    )
    return Layer(q, k, v, None if layer.bias_KM is None else pad(layer.bias_KM, (0, new.k_KMD.shape[-2])))


def _mask(layer: Layer, q: Tensor) -> Tensor | None:
    """All earlier columns, then a triangle, and the bias of slots that have one; none where all is causal."""
    count, columns = q.shape[-2], layer.k_KMD.shape[-2]
    if count == columns:
        return None
    seen = torch.ones(count, columns, dtype=torch.bool).tril(columns - count)
    if layer.bias_KM is None:
        return seen
    bias = layer.bias_KM[:, None, None].expand(-1, q.shape[1] // len(layer.bias_KM), count, -1).flatten(0, 1)
    return bias.masked_fill(~seen, -torch.inf)[None]


def _replaced(layer: Layer, inside: Region, made: Slots) -> Layer:
    """The layer with slots where the region was."""
    empty = layer.q_KGMD.new_zeros(*layer.q_KGMD.shape[:-2], made.keys_KTD.shape[-2], layer.q_KGMD.shape[-1])
    tensors = ((layer.q_KGMD, empty), (layer.k_KMD, made.keys_KTD), (layer.v_KMD, made.values_KTD))
    q, k, v = (_splice(old, new, inside, -2) for old, new in tensors)
    if made.bias_KT is None and layer.bias_KM is None:
        return Layer(q, k, v)
    old = k.new_zeros(layer.k_KMD.shape[:-1]) if layer.bias_KM is None else layer.bias_KM
    new = k.new_zeros(made.keys_KTD.shape[:-1]) if made.bias_KT is None else made.bias_KT
    return Layer(q, k, v, _splice(old, new, inside, -1))


def _splice(old: Tensor, new: Tensor, inside: Region, dim: int) -> Tensor:
    """`new` in place of the columns `inside`: [a, b, c, d] and (1, 3) with [x] give [a, x, d]."""
    start, end = inside
    return torch.cat([old.narrow(dim, 0, start), new, old.narrow(dim, end, old.shape[dim] - end)], dim)
