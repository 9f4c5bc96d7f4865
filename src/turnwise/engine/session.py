"""A conversation the engine holds open, and one step of it under way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np

from turnwise.engine.sample import Draw
from turnwise.engine.stops import StopStrings
from turnwise.engine.trie import Node, trie
from turnwise.types import Completion, Ids, Listener, Sampled, Sampling, Support, Top, TurnStop


@dataclass(slots=True, eq=False)
class LocalSession:
    """All tokens of a conversation; the first `written` have their keys and values in the pool's `slot`."""

    sampling: Sampling
    seed: int
    slot: int
    ids: list[int] = field(default_factory=list)
    client: str = ""
    written: int = 0
    sampled: int = 0
    """Tokens sampled since the seed was set: the next draw's number in its stream."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the step or fork that runs; others queue."""
    twin: LocalSession | None = None
    """A session opened earlier with the same prompt, whose reading of it will be copied."""

    def reseed(self, sampling: Sampling | None, seed: int | None) -> None:
        if sampling is not None:
            self.sampling = sampling
        if seed is not None:
            self.seed, self.sampled = seed % 2**64, 0

    def kept(self, ids: tuple[int, ...]) -> int:
        """How many first tokens of `ids` the session holds: of 1 2 3 it holds two of 1 2 5."""
        same = min(len(ids), len(self.ids))
        differ = np.flatnonzero(np.array(self.ids[:same]) != np.array(ids[:same]))
        return int(differ[0]) if len(differ) else same


@dataclass(slots=True, eq=False)
class Before:
    """What a session was before a step, to go back to when nobody waits for the step any more."""

    ids: list[int]
    sampling: Sampling
    seed: int
    sampled: int
    kept: int
    """How many of those tokens the step kept, all of them unless it brought another prompt."""

    @staticmethod
    def of(session: LocalSession, kept: int) -> Before:
        return Before(session.ids, session.sampling, session.seed, session.sampled, kept)

    def restore(self, session: LocalSession) -> None:
        """What stands in the cache of the tokens kept stays there."""
        session.ids, session.sampling = self.ids, self.sampling
        session.seed, session.sampled = self.seed, self.sampled
        session.written = min(session.written, self.kept)


@dataclass(slots=True, eq=False)
class Request:
    """One step of one session, while it is being decoded."""

    session: LocalSession
    max_tokens: int
    done: asyncio.Future[Completion]
    deadline: float
    listen: Listener | None = None
    stops: StopStrings | None = None
    node: Node | None = field(init=False)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    supports: list[Ids] = field(default_factory=list)
    tops: list[Top] = field(default_factory=list)
    stopped_by: int | str | None = None

    def __post_init__(self) -> None:
        self.node = trie(self.session.sampling.choices) if self.session.sampling.choices else None

    def add(self, draw: Draw, version: int) -> TurnStop | None:
        """Record a sampled token; returns why the step ends, if it does."""
        self.ids.append(draw.id)
        self.logprobs.append(draw.logprob)
        self.versions.append(version)
        self.supports.append(draw.support)
        self.tops.append(draw.top)
        self.session.ids.append(draw.id)
        self.session.sampled += 1
        if self.listen is not None:
            self.listen(Sampled(draw.id, draw.logprob, version, draw.top))
        return self._stop(draw.id)

    def _stop(self, token: int) -> TurnStop | None:
        if self.node is not None:
            self.node = self.node.children[token]
            self.stopped_by = None if self.node.children else token
        elif token in self.session.sampling.stop_ids:
            self.stopped_by = token
        elif self.stops is not None:
            self.stopped_by = self.stops.ended_by(self.ids)
        if self.stopped_by is not None:
            return TurnStop.STOP
        return TurnStop.LENGTH if len(self.ids) >= self.max_tokens else None

    def finish(self, stop: TurnStop) -> None:
        """Hand what was sampled to the caller, if there still is one."""
        if not self.done.done():
            self.done.set_result(self._completion(stop))

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def _completion(self, stop: TurnStop) -> Completion:
        sampling = self.session.sampling
        return Completion(
            np.array(self.ids, np.int32),
            np.array(self.logprobs, np.float32),
            np.array(self.versions, np.int32),
            stop,
            Support.stack(self.supports) if sampling.restricted else None,
            stopped_by=self.stopped_by,
            top=tuple(self.tops) if sampling.top_logprobs else (),
        )
