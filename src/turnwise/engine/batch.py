"""One forward pass: which tokens of which sessions it reads, what is computed, and what is drawn.

A batch holds all that the computation needs, so that it can run in a thread while sessions are cancelled or closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.engine.cache import FEW, CacheAttention, Feed
from turnwise.engine.pool import Pool
from turnwise.engine.request import Request
from turnwise.engine.sample import NOTHING, Draws, draw, uniforms
from turnwise.engine.stored import QueryRows
from turnwise.errors import EngineError
from turnwise.model import Policy
from turnwise.types import Ids, Sampling


@dataclass(frozen=True, slots=True)
class Drawing:
    """Whose next token is drawn, how, and from which of the batch's positions."""

    requests: list[Request]
    places: list[int]
    params: list[Sampling]
    allowed: list[Ids]
    uniform_B: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests, what each reads, and the drawing that follows."""

    requests: list[Request]
    feeds: list[Feed]
    ids: list[int]
    attend: CacheAttention
    drawing: Drawing


def shares(lefts: Sequence[int], room: int) -> list[int]:
    """How much of what is left each may read: all get the same, and what short ones do not need goes to the others.

    shares([100, 5, 40], 60) is [28, 5, 27]; with a room of 2 only the first two read.
    """
    given = [0] * len(lefts)
    order = sorted(range(min(len(lefts), room)), key=lambda i: (lefts[i], -i))
    for n, i in enumerate(order):
        given[i] = min(lefts[i], room // (len(order) - n))
        room -= given[i]
    return given


def plan(requests: Sequence[Request], chunk: int, mixed: int) -> list[tuple[Request, int]]:
    """Requests that decode read all they have; the others share `chunk` tokens, or `mixed` beside any that decode."""
    able = [r for r in requests if r.session.left > 0]
    decoding = [(r, r.session.left) for r in able if r.ids and r.session.left <= FEW]
    reading = [r for r in able if not r.ids or r.session.left > FEW]
    given = shares([r.session.left for r in reading], mixed if decoding else chunk)
    return decoding + [(r, n) for r, n in zip(reading, given, strict=True) if n]


def assemble(pool: Pool, planned: Sequence[tuple[Request, int]], every: int) -> Batch:
    """The batch of a plan; one of `every` tokens has its queries stored where a session wants them."""
    requests = [r for r, _ in planned]
    feeds = [_feed(r, count) for r, count in planned]
    ids = [i for (r, count) in planned for i in _next(r, count)]
    ends = np.cumsum([f.count for f in feeds])
    attend = CacheAttention(pool, feeds, _queries(pool, planned, ends, every))
    ready = [n for n, (r, count) in enumerate(planned) if r.session.left == count and _last(r)]
    return Batch(
        requests, feeds, ids, attend, _drawing([requests[n] for n in ready], [int(ends[n]) - 1 for n in ready])
    )


def _feed(request: Request, count: int) -> Feed:
    cache = request.session.cache
    assert cache is not None
    assert cache.columns + count <= cache.extent.size, "more columns than were reserved"
    position = cache.columns if cache.missing else cache.written - cache.shift
    return Feed(cache.extent, cache.columns, count, position, cache.biased)


def _next(request: Request, count: int) -> list[int]:
    """The tokens a session reads next."""
    session, cache = request.session, request.session.cache
    assert cache is not None
    if cache.missing:
        return [session.ids[t] for t in cache.head_M[cache.columns : cache.columns + count]]
    return session.ids[cache.written : cache.written + count]


def _last(request: Request) -> bool:
    """Whether what is left is the end of its tokens, and not where an event strikes."""
    session, cache = request.session, request.session.cache
    assert cache is not None
    return not cache.missing and session.border == len(session.ids)


def _queries(
    pool: Pool, planned: Sequence[tuple[Request, int]], ends: NDArray[np.int_], every: int
) -> QueryRows | None:
    wanted = []
    for (request, count), end in zip(planned, ends, strict=True):
        cache = request.session.cache
        if cache is None or cache.queries is None:
            continue
        tokens = cache.head_M[cache.columns :][:count] if cache.missing else np.arange(count) + cache.written
        asked = np.flatnonzero(tokens % every == 0)
        if len(asked):
            begun = int(cache.asked(every).sum())
            wanted.append((cache.queries, end - count + asked, begun + np.arange(len(asked))))
    return QueryRows.of(pool.shape, wanted)


def _drawing(requests: list[Request], places: list[int]) -> Drawing:
    sessions = [r.session for r in requests]
    allowed = [r.node.allowed if r.node else NOTHING for r in requests]
    uniform_B = uniforms([s.seed for s in sessions], [s.sampled for s in sessions])
    return Drawing(requests, places, [s.sampling for s in sessions], allowed, uniform_B)


@torch.inference_mode()
def compute(policy: Policy, batch: Batch) -> Draws:
    """Read, then draw a token where all is read."""
    ids = torch.tensor([batch.ids], device=policy.device)
    hidden = policy.hidden(ids, batch.attend.positions, batch.attend)[0]
    drawing = batch.drawing
    if not drawing.requests:
        return Draws([], 0)
    logits = policy.head(hidden[torch.tensor(drawing.places, device=hidden.device)])
    draws = draw(logits, drawing.params, drawing.allowed, drawing.uniform_B)
    if not np.isfinite([d.logprob for d in draws.each]).all():
        raise EngineError("found log-probabilities that are not finite; the weights hold NaN or infinite numbers")
    return draws
