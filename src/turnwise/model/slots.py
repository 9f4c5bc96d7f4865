"""Compaction replayed inside attention: a layer's own queries, keys and values in, the same keys and values with the
columns that events made appended, out.

Which keys were kept is read from the events and never decided again. Strikes that do not wait for each other are a
wave; within one, fits are padded to the largest and computed together. Shapes: N tokens of a row, P columns of the pool
(tokens, then slots wave by wave), S strikes, M columns a strike saw, A tokens whose queries it was fitted to, T slots,
K key/value heads, G query heads of a group, L layers, D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.errors import DataError
from turnwise.kv.columns import Columns, Struck, columns, struck
from turnwise.kv.fit import inner, linear, take
from turnwise.kv.rotary import turn
from turnwise.types import Ids, Strike

Gradient = Literal["map", "exact", "none"]
"""What flows through an event: `map` through keys and values, the map between them held fixed; `exact` everything;
`none` nothing."""

REPLAYED = ("own", "suffix", "context")
"""Sources whose queries a row computes anyway."""

FIT_NUMBERS = 2**25
"""Logits of fits that are held at once, for each query head of a group."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Strikes whose values are fitted together, and where in the pool their columns stand."""

    seen_SM: Tensor
    here_SM: Tensor
    rows_SA: Tensor
    by_SA: Tensor
    asked_SA: Tensor
    keep_LSKT: Tensor
    made_ST: Tensor
    inside_SM: Tensor
    ridge_S11: Tensor

    def map(self, layer: int, q_GKND: Tensor, k_KPD: Tensor, scale: float, inv_freq: Tensor | None) -> Tensor:
        """The linear maps B_SKTM."""
        asked = q_GKND[:, :, self.rows_SA]
        if inv_freq is not None:
            asked = turn(asked, self.by_SA, inv_freq)
        q_SKAD = asked.permute(2, 1, 0, 3, 4).flatten(2, 3)
        k_SKMD = k_KPD[:, self.seen_SM].transpose(0, 1)
        q, k = (x.to(inner(x.dtype)) for x in (q_SKAD, k_SKMD))
        logits = (scale * (q @ k.mT)).masked_fill(~self.here_SM[:, None, None], -torch.inf)
        keep_SKT = self.keep_LSKT[layer]
        stay_SKM = (~self.inside_SM[:, None]).repeat(1, k.shape[1], 1).scatter(-1, keep_SKT, True)
        asked_SA = self.asked_SA.repeat(1, len(q_GKND))
        return linear(
            logits, stay_SKM, keep_SKT, self.ridge_S11.to(logits.dtype), asked_SA[:, None], self.made_ST[:, None]
        )

    def values(self, B_SKTM: Tensor, v_KPD: Tensor) -> Tensor:
        """Slot values [K, T of all strikes, D]."""
        v_SKMD = v_KPD[:, self.seen_SM].transpose(0, 1)
        return (B_SKTM @ v_SKMD.to(B_SKTM.dtype)).transpose(0, 1)[:, self.made_ST].to(v_KPD.dtype)


@dataclass(frozen=True, slots=True)
class Wave:
    """Strikes that do not wait for each other: which columns their slots keep, and the fits of the last of them.

    The first `copied` slots are of strikes that leave values as they are.
    """

    kept_LKT: Tensor
    copied: int
    fits: tuple[Fit, ...]


class Slots:
    """What a row's strikes make of keys and values, layer by layer."""

    def __init__(
        self,
        ends: Ids,
        strikes: Sequence[Strike],
        positions: Ids,
        device: torch.device,
        inv_freq: Tensor | None,
        gradient: Gradient = "map",
    ) -> None:
        """`inv_freq` turns queries; None where none has to be."""
        found = struck(ends, strikes)
        self.columns: Columns = columns(ends, found)
        self.inv_freq, self.gradient = inv_freq, gradient
        tokens = len(ends)
        place = np.arange(tokens + sum(one.strike.event.slots for one in found))  # of a column in the pool
        self.waves: list[Wave] = []
        size = tokens
        for _, wave in groupby(sorted(found, key=lambda one: one.wave), key=lambda one: one.wave):
            ordered = sorted(wave, key=lambda one: (_fitted(one), len(one.seen), one.slots))
            for one in ordered:
                place[one.slots : one.slots + one.strike.event.slots] = np.arange(size, size + one.strike.event.slots)
                size += one.strike.event.slots
            if any(one.strike.event.slots for one in ordered):
                self.waves.append(_wave(ordered, place, positions, device))
        self.extra = torch.from_numpy(place[self.columns.source[tokens:]]).to(device)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """[1, H, N, D] queries and [1, K, N, D] keys and values in; keys and values of all columns out."""
        q_GKND = q[0].unflatten(0, (k.shape[1], -1)).transpose(0, 1)
        keys, values, tokens = k[0], v[0], k.shape[2]
        with torch.no_grad() if self.gradient == "none" else nullcontext():
            for wave in self.waves:
                keys, values = self._struck(wave, layer, q_GKND, keys, values, scale)
        pools = (torch.cat([x[0], made[:, tokens:]], 1) for x, made in ((k, keys), (v, values)))
        keys, values = (torch.cat([pool[:, :tokens], pool[:, self.extra]], 1)[None] for pool in pools)
        return keys, values

    def _struck(
        self, wave: Wave, layer: int, q_GKND: Tensor, k_KPD: Tensor, v_KPD: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """The pool with the wave's slots."""
        kept_KT = wave.kept_LKT[layer]
        made = [take(v_KPD, kept_KT[:, : wave.copied])]
        for fit in wave.fits:
            with nullcontext() if self.gradient == "exact" else torch.no_grad():
                B_SKTM = fit.map(layer, q_GKND, k_KPD, scale, self.inv_freq)
            made.append(fit.values(B_SKTM, v_KPD))
        return torch.cat([k_KPD, take(k_KPD, kept_KT)], 1), torch.cat([v_KPD, *made], 1)


def turns(strikes: Sequence[Strike]) -> bool:
    """Whether any was fitted to queries that have to be turned."""
    return any(s.event.method == "match" and s.event.source == "own" for s in strikes)


def _fitted(one: Struck) -> bool:
    """Whether values are fitted: what is kept whole, or evicted, stays as it is."""
    event = one.strike.event
    return event.method == "match" and 0 < event.slots < event.end - event.start


def _wave(ordered: Sequence[Struck], place: NDArray[np.intp], positions: Ids, device: torch.device) -> Wave:
    kept = [place[one.seen[one.strike.event.start + one.strike.event.kept.astype(np.int64)]] for one in ordered]
    layers = {k.shape[:2] for k in kept}
    if len(layers) > 1:
        raise DataError(f"found events of models with {sorted(layers)} layers and heads in one row; expected one model")
    copied = sum(one.strike.event.slots for one in ordered if not _fitted(one))
    fits = [_fit(some, place, positions, device) for some in _chunks([one for one in ordered if _fitted(one)])]
    return Wave(torch.from_numpy(np.concatenate(kept, -1)).to(device), copied, tuple(fits))


def _chunks(ordered: Sequence[Struck]) -> list[list[Struck]]:
    """Strikes of about one size, so many that their logits (of one head) fit into memory at once."""
    found: list[list[Struck]] = []
    for one in ordered:
        most = max([len(one.asked), *(len(o.asked) for o in found[-1])]) if found else 0
        near = found and 2 * len(found[-1][0].seen) >= len(one.seen)
        if near and (len(found[-1]) + 1) * most * len(one.seen) * one.strike.event.kept.shape[1] <= FIT_NUMBERS:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _fit(some: Sequence[Struck], place: NDArray[np.intp], positions: Ids, device: torch.device) -> Fit:
    """Rectangles over strikes, padded with token 0, which is masked."""
    events = [one.strike.event for one in some]
    seen, here = _padded([place[one.seen] for one in some])
    rows, asked = _padded([one.asked for one in some])
    by, _ = _padded([_turned(one, positions) for one in some])
    made = np.arange(max(e.slots for e in events)) < np.array([[e.slots] for e in events])
    keep = np.zeros((len(events[0].kept), len(some), events[0].kept.shape[1], made.shape[1]), np.int64)
    for s, e in enumerate(events):
        keep[:, s, :, : e.slots] = e.start + e.kept
        keep[:, s, :, e.slots :] = keep[:, s, :, :1]
    column = np.arange(seen.shape[1])
    inside = (column >= np.array([[e.start] for e in events])) & (column < np.array([[e.end] for e in events]))
    ridge = np.array([e.ridge * made.shape[1] / e.slots for e in events])[:, None, None]
    arrays = (seen, here, rows, by, asked, keep, made, inside, ridge)
    return Fit(*(torch.from_numpy(x).to(device) for x in arrays))


def _turned(one: Struck, positions: Ids) -> NDArray[np.int64]:
    """How far each query is turned: to the i-th position mod `span` behind the event, if it is the region's own."""
    event = one.strike.event
    if event.source not in REPLAYED:
        raise DataError(
            f"found an event fitted to queries of {event.source!r}, which a replay does not have; expected one of "
            f"{', '.join(REPLAYED)}"
        )
    if event.source != "own":
        return np.zeros(len(one.asked), np.int64)
    goal = int(positions[one.strike.at]) + np.arange(len(one.asked)) % event.span
    by: NDArray[np.int64] = goal.astype(np.int64) - positions[one.asked]
    return by


def _padded(parts: Sequence[np.ndarray]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Ragged arrays as a rectangle and where it is real: [4, 7], [9] gives [[4, 7], [9, 0]], [[1, 1], [1, 0]]."""
    real = np.arange(max(map(len, parts))) < np.array([[len(p)] for p in parts])
    out = np.zeros(real.shape, np.int64)
    out[real] = np.concatenate(parts)
    return out, real
