"""Events on caches in the pool: the mathematics of kv/ for sessions that fire together, and slots where columns were.

The same code repeats an event that is recorded, with the columns that were kept then, so that a cache comes back as it
was. Shapes: S sessions that are compacted together, L layers of a piece, K key/value heads, G query heads of a group,
M columns, T slots, D head width.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.engine import stored
from turnwise.engine.ask import Due
from turnwise.engine.cached import Cached
from turnwise.engine.pool import Pool
from turnwise.kv.columns import REREAD
from turnwise.kv.methods import Slots, carried, compact
from turnwise.kv.queries import SOURCES, Stored, spaced
from turnwise.types import Event

PIECE_NUMBERS = 2**18
"""Numbers of keys that are compacted at once, over layers and sessions: what stays near a core."""


@dataclass(frozen=True, slots=True)
class Rotary:
    """What attention multiplies its logits with, and how queries are turned."""

    scale: float
    inv_freq: Tensor


@dataclass(frozen=True, slots=True)
class Done:
    """A strike that has been carried out, and the cache it leaves."""

    strike: Due
    event: Event
    cache: Cached


def alike(strikes: Sequence[Due]) -> list[list[Due]]:
    """Which strikes are computed together: those of equal regions of equally many columns, under equal settings."""
    groups: dict[tuple[object, ...], list[Due]] = {}
    for strike in strikes:
        cache = strike.cache
        there = cache.tokens_M >= 0
        ahead = (cache.written - cache.shift - cache.places_M)[there]
        alone = id(strike) if not strike.settings.uniform else 0
        key = (strike.region, strike.settings, strike.forced is None, there.tobytes(), ahead.tobytes(), alone)
        groups.setdefault(key, []).append(strike)
    return list(groups.values())


@torch.inference_mode()
def carry_out(pool: Pool, strikes: Sequence[Due], rotary: Rotary | None, every: int) -> list[Done]:
    """Compact the caches of sessions alike; what becomes of the sessions is left to the caller."""
    began = time.perf_counter()
    first = strikes[0]
    if first.settings.method == REREAD:
        made = [_again(pool, strike) for strike in strikes]
    elif first.settings.method == "delete":
        made = [_deleted(pool, strike, every) for strike in strikes]
    else:
        assert rotary is not None
        made = _fitted(pool, strikes, rotary, every)
    ms = (time.perf_counter() - began) * 1e3 / len(strikes)
    return [_told(one, ms) for one in made]


def _told(one: Done, ms: float) -> Done:
    """With what it cost; of an event that is repeated, the first time counts."""
    return one if one.strike.forced else replace(one, event=replace(one.event, ms=ms))


def _event(strike: Due, kept: NDArray[np.int16], queries: NDArray[np.int64], residual: float, span: int) -> Event:
    if strike.forced is not None:
        return strike.forced
    cache, (start, end), settings = strike.cache, strike.region, strike.settings
    after = len(queries) if settings.method == REREAD else cache.columns - (end - start) + kept.shape[2]
    return Event(
        at=cache.written,
        start=start,
        end=end,
        method=settings.method,
        kept=kept,
        queries=queries.astype(np.int32),
        source=settings.source,
        span=span,
        ridge=settings.ridge,
        trigger=strike.trigger,
        before=cache.columns,
        after=after,
        residual=residual,
    )


def _again(pool: Pool, strike: Due) -> Done:
    """Nothing of the cache stays: the tokens outside the region, its head and its tail are to be read again."""
    cache, (start, end), settings = strike.cache, strike.region, strike.settings
    tokens = cache.tokens_M
    inside = tokens[start:end][tokens[start:end] >= 0]
    parts = [inside[a:b] for a, b in carried(len(inside), settings.carry_head, settings.carry_tail)]
    again = np.concatenate([tokens[:start], *parts, tokens[end:]])
    again = again[again >= 0]
    event = _event(strike, np.zeros((pool.shape.layers, pool.shape.heads, 0), np.int16), again, 0.0, 1)
    left = cache.twin(cache.extent, cache.queries)
    left.head_M, left.place_M, left.missing = again, np.arange(len(again)), len(again)
    left.at, left.shift, left.struck = cache.written, cache.written - len(again), cache.struck + 1
    left.biased = False
    return Done(strike, event, left)


def _deleted(pool: Pool, strike: Due, every: int) -> Done:
    """The newest of the region stay as they are: nothing has to be asked."""
    (start, end), shape = strike.region, pool.shape
    t = strike.settings.slots(end - start)
    kept = np.broadcast_to(np.arange(end - start - t, end - start), (shape.layers, shape.heads, t)).astype(np.int16)
    event = _event(strike, kept, np.zeros(0, np.int64), 0.0, 1)
    cache = strike.cache
    for store in (*pool.keys, *pool.values, *pool.bias):
        rows = pool.view(store, cache.extent)
        _splice(rows, strike.region, rows[:, end - t : end].clone(), cache.columns)
    return Done(strike, event, _after(pool, strike, t, every))


def _fitted(pool: Pool, strikes: Sequence[Due], rotary: Rotary, every: int) -> list[Done]:
    """Slots from reference queries, a few layers at a time."""
    first, shape, columns = strikes[0], pool.shape, _columns(strikes[0])
    whole = first.forced is None and not first.settings.uniform  # heads of all layers share their slots
    size = shape.layers if whole else max(1, PIECE_NUMBERS // (len(strikes) * shape.heads * columns * shape.width))
    kept, residuals, slots = [], [], 0
    asked = _asked(first, every, shape.groups)
    for layers in torch.arange(shape.layers).split(size):
        one = _piece(pool, strikes, layers.tolist(), rotary, every)
        kept.append(one.keep_KT - first.region[0])
        if one.bias_KT is not None:
            kept[-1] = kept[-1].masked_fill(one.bias_KT == -torch.inf, -1)
        residuals.append(one.residual_K)
        slots = max(slots, one.keep_KT.shape[-1])
        _write(pool, strikes, layers.tolist(), one)
    kept_LSKT = torch.cat(kept).to(torch.int16).cpu().numpy()
    residual_S = torch.cat(residuals).mean((0, 2)).tolist()
    span = max(1, columns - first.region[1])
    made = []
    for n, strike in enumerate(strikes):
        cache = strike.cache
        queries = cache.tokens_M[asked]
        event = _event(strike, np.ascontiguousarray(kept_LSKT[:, n]), queries, residual_S[n], span)
        made.append(Done(strike, event, _after(pool, strike, slots, every)))
    return made


def _columns(strike: Due) -> int:
    return strike.cache.columns


def _asked(strike: Due, every: int, groups: int) -> NDArray[np.int64]:
    """The columns whose queries are taken; of sources that take none, no one's."""
    settings, (start, end) = strike.settings, strike.region
    cache = strike.cache
    there = torch.from_numpy(cache.asked(every))
    begin, stop = {"own": (start, end), "suffix": (end, len(there)), "context": (0, len(there))}.get(
        settings.source, (0, 0)
    )
    count = -(-settings.per_slot * settings.slots(end - start) // groups)
    found: NDArray[np.int64] = spaced(begin + there[begin:stop].nonzero().squeeze(-1), count).numpy()
    return found


def _piece(pool: Pool, strikes: Sequence[Due], layers: list[int], rotary: Rotary, every: int) -> Slots:
    """Slots [L, S, K, T] of some layers."""
    first, columns = strikes[0], _columns(strikes[0])
    settings, (start, end) = first.settings, first.region
    k, v = (_stack(pool, stores, strikes, layers, columns) for stores in (pool.keys, pool.values))
    q = _queries(pool, strikes, layers, every)
    cache = first.cache
    asked, places = torch.from_numpy(cache.asked(every)).to(k.device), torch.from_numpy(cache.places_M).to(k.device)
    known = Stored(q, k, asked, places, first.region, cache.written - cache.shift, rotary.inv_freq, seed=layers[0])
    wanted = SOURCES[settings.source](known, settings.per_slot * settings.slots(end - start))
    keep = None
    if first.forced is not None:
        kept = [s.forced.kept[layers[0] : layers[-1] + 1] for s in strikes if s.forced]
        keep = torch.from_numpy(np.stack(kept, 1).astype(np.int64)).to(k.device)
    return compact(wanted, k, v, first.region, rotary.scale, settings, keep)


def _stack(pool: Pool, stores: list[Tensor], strikes: Sequence[Due], layers: list[int], columns: int) -> Tensor:
    """[L, S, K, M, D]"""
    extents = [s.cache.extent for s in strikes]
    return torch.stack([torch.stack([pool.view(stores[n], e)[:, :columns] for e in extents]) for n in layers])


def _queries(pool: Pool, strikes: Sequence[Due], layers: list[int], every: int) -> Tensor:
    """[L, S, K, G, M, D], zeros where none are asked for."""
    shape, columns = pool.shape, _columns(strikes[0])
    size = (len(layers), len(strikes), shape.heads, shape.groups, columns, shape.width)
    q = torch.zeros(size, dtype=shape.dtype, device=shape.device)
    there = strikes[0].cache.asked(every)
    wanted = (
        np.flatnonzero(there) if strikes[0].settings.source == "gaussian" else _asked(strikes[0], every, shape.groups)
    )
    places, at = (np.cumsum(there) - 1)[wanted], torch.from_numpy(wanted).to(shape.device)
    for s, strike in enumerate(strikes):
        for n, layer in enumerate(layers):
            if strike.cache.queries is not None:
                q[n, s][:, :, at] = stored.read(pool, strike.cache.queries, layer, places)
    return q


def _write(pool: Pool, strikes: Sequence[Due], layers: list[int], made: Slots) -> None:
    """Slots into the pool, in the place of the region."""
    bias = pool.with_bias() if made.bias_KT is not None else pool.bias
    for s, strike in enumerate(strikes):
        cache = strike.cache
        for n, layer in enumerate(layers):
            parts = [(pool.keys[layer], made.keys_KTD[n, s]), (pool.values[layer], made.values_KTD[n, s])]
            if bias:
                new = made.keys_KTD.new_zeros(made.keep_KT[n, s].shape) if made.bias_KT is None else made.bias_KT[n, s]
                parts.append((bias[layer], new[..., None].float()))
            for store, slots in parts:
                _splice(pool.view(store, cache.extent), strike.region, slots, cache.columns)
        cache.biased = cache.biased or made.bias_KT is not None


def _splice(rows_KCD: Tensor, region: tuple[int, int], slots_KTD: Tensor, columns: int) -> None:
    """Slots in place of the region, and what stood behind it behind them."""
    start, end = region
    middle = start + slots_KTD.shape[1]
    behind = rows_KCD[:, end:columns].clone()
    rows_KCD[:, start:middle] = slots_KTD
    rows_KCD[:, middle : middle + behind.shape[1]] = behind


def _after(pool: Pool, strike: Due, slots: int, every: int) -> Cached:
    """The cache with so many slots in place of the region; queries of the columns that are gone go with them."""
    cache, (start, end) = strike.cache, strike.region
    tokens, places, there = cache.tokens_M, cache.places_M, cache.asked(every)
    if cache.queries is not None:
        stay = there.copy()
        stay[start:end] = False
        stored.pack(pool, cache.queries, (np.cumsum(there) - 1)[stay])
    left = cache.twin(cache.extent, cache.queries)
    left.head_M = np.concatenate([tokens[:start], np.full(slots, -1), tokens[end:]])
    left.place_M = np.concatenate([places[:start], np.zeros(slots, np.int64), places[end:]])
    left.at, left.struck = cache.written, cache.struck + 1
    return left
