"""A conversation the engine holds open: its tokens, how it is sampled, and where its cache is."""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from turnwise.engine.cached import Cached
from turnwise.kv.columns import REREAD
from turnwise.types import Compaction, Event, Sampling, Settings


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
    settings: list[Settings] = field(default_factory=list)
    """How each of them was made, to repeat it."""
    gates: list[int] = field(default_factory=list)
    """Tokens at which reading stops, to ask whether to compact; rising."""
    marks: list[int] = field(default_factory=list)
    """Where each turn begins."""
    drawn: int = 0
    """Tokens sampled in all."""
    sampled: int = 0
    """Tokens sampled since the seed was set: the next draw's number in its stream."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the step or fork that runs; others queue."""
    busy: bool = False
    """A step of it has been admitted, so that its cache has to stay."""
    striking: bool = False
    """Its cache is being compacted in this moment."""
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
        """Where reading has to stop: at an event that its cache has yet to undergo, at a gate, or at the end."""
        struck = self.cache.struck if self.cache else 0
        stops = [len(self.ids), *self.gates[:1], *(e.at for e in self.events[struck : struck + 1])]
        return min(stops)

    @property
    def left(self) -> int:
        """Columns to be written before it can be sampled from, or before an event."""
        missing = self.cache.missing if self.cache else 0
        return missing or self.border - self.written

    @property
    def shift(self) -> int:
        """How far positions lag behind tokens: a text that is read again begins at position 0."""
        again = [e for e in self.events if e.method == REREAD]
        return again[-1].at - len(again[-1].queries) if again else 0

    def reseed(self, sampling: Sampling | None, seed: int | None) -> None:
        if sampling is not None:
            self.sampling = sampling
        if seed is not None:
            self.seed, self.sampled = seed % 2**64, 0

    def rewind(self, ids: list[int], kept: int) -> bool:
        """Other tokens, of which the first are kept: a turn begins behind them. False where the cache cannot stay."""
        if len(ids) > kept or not self.marks:
            self.marks = [*(m for m in self.marks if m < kept), kept if self.marks else 0]
        self.events = [event for event in self.events if event.at <= kept]
        self.settings = self.settings[: len(self.events)]
        self.ids, self.reached = ids, min(self.reached, kept, len(ids) - 1)
        cache = self.cache
        return cache is None or (cache.struck <= len(self.events) and cache.cut(min(kept, len(ids) - 1)))

    def branch(self, seed: int) -> LocalSession:
        """Another session with the same past, and no cache."""
        whole = copy(self)
        whole.ids, whole.events, whole.settings = list(self.ids), list(self.events), list(self.settings)
        whole.marks, whole.gates, whole.turn, whole.cache = list(self.marks), [], asyncio.Lock(), None
        whole.busy = whole.waits = whole.striking = False  # a step cancelled just now may still be leaving
        whole.seed, whole.sampled = seed % 2**64, 0
        return whole

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

    session: LocalSession
    kept: int
    """How many of its tokens the step kept, all of them unless it brought another prompt."""
    was: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        lists = ("events", "settings", "marks")
        plain = ("ids", "sampling", "seed", "sampled", "drawn", "reached")
        self.was = {n: list(getattr(self.session, n)) for n in lists} | {n: getattr(self.session, n) for n in plain}

    def restore(self) -> bool:
        """Go back; False where the cache cannot, since an event has struck it meanwhile."""
        session, events = self.session, self.was["events"]
        pairs = zip(events, session.events, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a is not b), min(len(events), len(session.events)))
        for name, value in self.was.items():
            setattr(session, name, value)
        session.gates, session.reached = [], min(session.reached, self.kept)
        cache = session.cache
        return cache is None or (not session.striking and cache.struck <= same and cache.cut(self.kept))
