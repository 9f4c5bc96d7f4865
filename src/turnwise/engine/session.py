"""A conversation the engine holds open: its tokens, how it is sampled, and where its cache is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np

from turnwise.engine.cached import Cached
from turnwise.types import Compaction, Event, Sampling


@dataclass(slots=True, eq=False)
class LocalSession:
    """All tokens of a conversation and the events that struck its cache; the cache itself may be gone and come back."""

    sampling: Sampling
    seed: int
    ids: list[int] = field(default_factory=list)
    client: str = ""
    compaction: Compaction | None = None
    capture: bool = False
    """Whether its queries are stored."""
    cache: Cached | None = None
    events: list[Event] = field(default_factory=list)
    sampled: int = 0
    """Tokens sampled since the seed was set: the next draw's number in its stream."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the step or fork that runs; others queue."""
    busy: bool = False
    """A step of it has been admitted, so that its cache has to stay."""
    waits: bool = False
    """It waits for another to read what both have in common."""
    used: float = 0.0
    """When it was last needed."""
    gone: str = ""
    """Why the engine does not hold it any more."""
    reached: int = 0
    """How many of its tokens have ever been read: what is read again is counted."""

    @property
    def written(self) -> int:
        return self.cache.written if self.cache else 0

    @property
    def border(self) -> int:
        """Where reading has to stop: at the next event that its cache has yet to undergo, or at the end."""
        struck = self.cache.struck if self.cache else 0
        return self.events[struck].at if struck < len(self.events) else len(self.ids)

    @property
    def left(self) -> int:
        """Columns to be written before it can be sampled from, or before an event."""
        missing = self.cache.missing if self.cache else 0
        return missing or self.border - self.written

    def reseed(self, sampling: Sampling | None, seed: int | None) -> None:
        if sampling is not None:
            self.sampling = sampling
        if seed is not None:
            self.seed, self.sampled = seed % 2**64, 0

    def kept(self, ids: tuple[int, ...]) -> int:
        """How many first tokens of `ids` the session holds: of 1 2 3 it holds two of 1 2 5."""
        return common(self.ids, ids)


def common(a: list[int] | tuple[int, ...], b: list[int] | tuple[int, ...]) -> int:
    """The length of the longest common prefix."""
    same = min(len(a), len(b))
    if tuple(a[:same]) == tuple(b[:same]):
        return same
    return int(np.argmax(np.array(a[:same]) != np.array(b[:same])))


@dataclass(slots=True, eq=False)
class Before:
    """What a session was before a step, to go back to when nobody waits for the step any more."""

    ids: list[int]
    sampling: Sampling
    seed: int
    sampled: int
    events: tuple[Event, ...]
    kept: int
    """How many of those tokens the step kept, all of them unless it brought another prompt."""

    @staticmethod
    def of(session: LocalSession, kept: int) -> Before:
        return Before(session.ids, session.sampling, session.seed, session.sampled, tuple(session.events), kept)

    def restore(self, session: LocalSession) -> bool:
        """Go back; False where the cache cannot, since an event has struck it meanwhile."""
        pairs = zip(self.events, session.events, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a is not b), min(len(self.events), len(session.events)))
        session.sampling, session.seed, session.sampled = self.sampling, self.seed, self.sampled
        session.ids, session.events = self.ids, list(self.events)
        cache = session.cache
        return cache is None or (cache.struck <= same and cache.cut(self.kept))
