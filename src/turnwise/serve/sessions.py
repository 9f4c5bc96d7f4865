"""Conversations that the server holds open between requests, by the names clients know them by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from turnwise.errors import SessionGone, TurnwiseError
from turnwise.serve.once import Steps
from turnwise.serve.problem import Problem, full
from turnwise.types import Compaction, Engine, Sampling, Session


@dataclass(slots=True, eq=False)
class Held:
    """One conversation. A `loose` one was made for whole prompts (X-Session-ID) and can be made again from the next."""

    name: str
    loose: bool
    session: Session | None = None
    client: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the route that opened it wants to find again."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    steps: Steps = field(default_factory=Steps)
    busy: int = 0
    used: float = field(default_factory=time.monotonic)
    closed: bool = False

    @property
    def live(self) -> Session:
        if self.session is None or self.closed:
            raise SessionGone(f"found session {self.name!r}, which is closed; expected an open one")
        return self.session


class Sessions:
    """All of them: at most `most`, each forgotten after `ttl_s` without use."""

    def __init__(self, engine: Engine, most: int, ttl_s: float) -> None:
        self.engine = engine
        self.most = most
        self.ttl_s = ttl_s
        self.closed_idle = 0
        self._held: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, name: str) -> Held:
        held = self._held.get(name)
        if held is None:
            raise Problem(404, f"session {name!r}", "a session that is open", "Create it first; idle ones are closed.")
        return held

    async def make(
        self,
        name: str,
        ids: Sequence[int],
        sampling: Sampling,
        seed: int,
        client: str,
        compaction: Compaction | None = None,
    ) -> Held:
        """Open a session under a name that is free."""
        held = await self._reserve(name, loose=False, client=client)
        engine = self.engine
        await self._begin(held, lambda: engine.open(ids, sampling, seed=seed, client=client, compaction=compaction))
        return held

    async def fork(self, held: Held, name: str, seed: int) -> Held:
        """A second session, under a name that is free, that goes on from the same tokens."""
        branch = await self._reserve(name, loose=False, client=held.client)
        await self._begin(branch, lambda: self.engine.fork(held.live, seed=seed))
        return branch

    @asynccontextmanager
    async def whole(
        self, name: str, ids: Sequence[int], sampling: Sampling, seed: int, client: str
    ) -> AsyncIterator[Session]:
        """The session of that name for a request that brings its whole prompt, opened if there is none."""
        held = self._held.get(name) or await self._reserve(name, loose=True, client=client)
        with self.use(held):
            async with held.opening:
                if held.session is None:
                    await self._begin(held, lambda: self.engine.open(ids, sampling, seed=seed, client=client))
            try:
                yield held.live
            except SessionGone:
                # The engine let go of it by its own limits; the next request brings the whole prompt again.
                self._forget(held)
                raise

    def use(self, held: Held) -> _Use:
        """While in use a session is not idle."""
        return _Use(held)

    async def drop(self, held: Held) -> None:
        """Close a session; steps that run on it fail."""
        self._forget(held)
        if held.session is not None:
            try:
                await self.engine.close(held.session)
            except TurnwiseError:
                return  # the engine had let go of it already

    async def sweep(self) -> int:
        """Close what was idle for too long; returns how many."""
        late = time.monotonic() - self.ttl_s
        idle = [held for held in self._held.values() if not held.busy and held.used < late]
        for held in idle:
            await self.drop(held)
        self.closed_idle += len(idle)
        return len(idle)

    async def close(self) -> None:
        for held in list(self._held.values()):
            await self.drop(held)

    async def _reserve(self, name: str, *, loose: bool, client: str) -> Held:
        """Take the name before anything is awaited on its behalf, so that two requests cannot both have it."""
        if name in self._held:
            raise Problem(409, f"session {name!r}, which is in use", "an id of no open session", "Choose another id.")
        held = self._held[name] = Held(name, loose, client=client)
        try:
            await self._make_room()
        except BaseException:
            self._forget(held)
            raise
        return held

    async def _begin(self, held: Held, begin: Callable[[], Awaitable[Session]]) -> None:
        """Give a name its session; one whose name was closed meanwhile does not stay in the engine."""
        try:
            held.session = await begin()
        except BaseException:
            self._forget(held)
            raise
        if held.closed:
            await self.drop(held)
            raise SessionGone(f"found session {held.name!r} closed while it was opened; expected it to stay open")

    async def _make_room(self) -> None:
        """Over the limit, idle sessions go that come back by themselves, the longest unused first."""
        while len(self._held) > self.most:
            idle = [held for held in self._held.values() if held.loose and not held.busy and held.session is not None]
            if not idle:
                raise full(f"{self.most} sessions open", f"fewer than {self.most}")
            await self.drop(min(idle, key=lambda held: held.used))

    def _forget(self, held: Held) -> None:
        held.closed = True
        if self._held.get(held.name) is held:
            del self._held[held.name]


@dataclass(frozen=True, slots=True)
class _Use:
    held: Held

    def __enter__(self) -> Held:
        self.held.busy += 1
        return self.held

    def __exit__(self, *_: object) -> None:
        self.held.busy -= 1
        self.held.used = time.monotonic()
