"""The built-in engine: any transformers causal model, many sessions decoded together, weights shared with the trainer.

A step joins the running batch at its next token and leaves when it is done. A session keeps its cache between steps and
reads only what is new, the last sampled token included, whose key and value are not written when it is drawn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from turnwise.engine import ask, door
from turnwise.engine.gauges import gauges
from turnwise.engine.limits import Limits
from turnwise.engine.pool import Pool
from turnwise.engine.request import Request
from turnwise.engine.room import Room
from turnwise.engine.schedule import Schedule
from turnwise.engine.session import Before, LocalSession
from turnwise.engine.shape import seen
from turnwise.engine.stops import StopStrings
from turnwise.engine.strikes import Strikes, Write
from turnwise.errors import EngineError, EngineFull, SessionGone, TooLong
from turnwise.kv import trigger
from turnwise.model import Policy, parameters, reload
from turnwise.model.packed import forget, sampler
from turnwise.types import Compaction, Completion, Event, Listener, Sampling, Session, Settings, TurnStop

COUNTS = (
    "tokens_read",
    "tokens_replayed",
    "tokens_shared",
    "tokens_sampled",
    "tokens_forced",
    "forwards",
    "near_ties",
    "evicted",
    "expired",
    "queued",
    "events",
    "events_repeated",
    "columns_freed",
    "tokens_injected",
)


class LocalEngine:
    """Implements types.Engine over a policy in this process."""

    def __init__(self, policy: Policy, limits: Limits | None = None, write_notice: Write | None = None) -> None:
        """`write_notice` makes tokens of a notice's text, where sessions are opened with notices."""
        self.policy = policy
        self.limits = limits = limits or Limits()
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        shape, rotary = seen(policy)
        pool = Pool.of(shape, limits.max_cache_bytes, limits.max_cache_tokens)
        self.room = Room(pool, self.counts, limits.query_every)
        self.strikes = Strikes(pool, rotary, limits.query_every, self.counts, write_notice)
        mixed = limits.mixed(parameters(policy.model), policy.device.type)
        self.schedule = Schedule(sampler(policy), self.room, limits, self.strikes, mixed, self.counts)
        self.schedule.go.set()
        if limits.threaded:
            self.schedule.thread = ThreadPoolExecutor(1, "turnwise-engine")

    @property
    def version(self) -> int:
        """Of the weights that tokens are sampled with."""
        return self.schedule.version

    async def open(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        client: str = "",
        compaction: Compaction | None = None,
    ) -> LocalSession:
        ids = door.known(prompt_ids, self.policy.vocab)
        door.check(sampling, self.policy.vocab)
        if compaction is not None:
            self.strikes.check(compaction)
        capture = compaction is not None and self.strikes.captures(compaction.settings)
        return self._hold(LocalSession(sampling, seed % 2**64, list(ids), client, compaction, capture))

    def _hold(self, session: LocalSession) -> LocalSession:
        """Take a session in, if limits allow another."""
        self._expire()
        limits, client = self.limits, session.client
        if limits.max_sessions is not None and len(self.room.sessions) >= limits.max_sessions:
            raise EngineFull(f"found {limits.max_sessions} sessions, all this engine may hold; close one or come again")
        mine = sum(s.client == client for s in self.room.sessions) if limits.max_client_sessions is not None else 0
        if limits.max_client_sessions is not None and mine >= limits.max_client_sessions:
            raise EngineFull(f"found {mine} sessions of client {client!r}, all it may hold; close one or come again")
        self.room.touch(session)
        self.room.sessions.add(session)
        return session

    async def step(
        self,
        session: Session,
        new_ids: Sequence[int],
        max_tokens: int | None = None,
        *,
        whole: bool = False,
        sampling: Sampling | None = None,
        seed: int | None = None,
        deadline_s: float | None = None,
        listen: Listener | None = None,
    ) -> Completion:
        held, new = self._own(session), door.known(new_ids, self.policy.vocab)
        deadline = float("inf") if deadline_s is None else asyncio.get_running_loop().time() + deadline_s
        if sampling is not None:
            door.check(sampling, self.policy.vocab)
        async with held.turn:
            self._own(session)  # it may have been closed while this step queued
            kept = held.kept(new) if whole else len(held.ids)
            ids = [*held.ids[:kept], *(new[kept:] if whole else new)]
            asked = (sampling or held.sampling).max_tokens if max_tokens is None else max_tokens
            limit = door.limit(held, len(ids), asked, self.policy.context)
            before = Before(held, kept)
            try:
                if not held.rewind(ids, kept):
                    self.room.forget(held)
                held.reseed(sampling, seed)
                return await self._sampled(held, limit, deadline, listen)
            except (asyncio.CancelledError, TooLong, EngineFull):
                if not before.restore():  # nobody has seen these tokens
                    self.room.forget(held)
                raise

    async def compact(
        self, session: Session, region: tuple[int, int] | None = None, settings: Settings | None = None
    ) -> Event | None:
        held = self._own(session)
        async with held.turn:
            self._own(session)
            how = settings or (held.compaction.settings if held.compaction else Settings())
            self.strikes.check_settings(how)
            now = ask.held(held, max(len(held.ids) - 1, 0))
            region = trigger.asked(now, *(region or (min(now.protected, now.columns), now.columns)))
            if region is None or how.slots(region[1] - region[0]) >= region[1] - region[0]:
                return None
            before = Before(held, len(held.ids))
            if self.strikes.captures(how) and not held.capture:
                held.capture = True
                self.room.forget(held)
            try:
                said = await self._run(held, 0, float("inf"), region=region, settings=how, ending=TurnStop.LENGTH)
            except (asyncio.CancelledError, TooLong, EngineFull):
                if not before.restore():
                    self.room.forget(held)
                raise
            return said.events[-1]

    async def fork(self, session: Session, *, seed: int) -> LocalSession:
        held = self._own(session)
        async with held.turn:
            self._own(session)
            branch = self._hold(held.branch(seed))
            async with self.schedule.border:
                self.room.whole(held, branch)
            return branch

    async def close(self, session: Session) -> None:
        self._close(self._own(session), "closed")

    def _close(self, session: LocalSession, why: str) -> None:
        error = SessionGone(f"the session was {why} while it was being sampled from")
        self.schedule.end(error, of={session})
        self.room.close(session, why)

    async def pause(self) -> None:
        self.schedule.go.clear()
        async with self.schedule.border:
            pass  # what was being computed is done

    async def resume(self) -> None:
        self.schedule.go.set()

    async def load(self, folder: Path, version: int) -> None:
        async with self.schedule.border:
            await self.schedule.compute(reload, self.policy, folder)
            self.update(version)

    def update(self, version: int) -> None:
        """The shared weights have changed: tokens now carry `version`; `on_update` says what live sessions do."""
        if self.room.computing:
            raise EngineError("found an update of weights while a forward pass runs; pause the engine first")
        self.schedule.version = version
        forget(self.schedule.policy)
        for session in list(self.room.sessions):
            if self.limits.on_update == "drop":
                self._close(session, "dropped by an update of the weights")
            elif self.limits.on_update == "recompute":
                self.room.reset(session)

    def stats(self) -> Mapping[str, float]:
        self._expire()
        return {name: float(value) for name, value in (self.counts | gauges(self.schedule)).items()}

    def check(self) -> None:
        """EngineError where the cache has lost count: extents owned twice or by nobody, sums that differ."""
        self.room.check()

    @property
    def cache_bytes(self) -> int:
        """The most that caches have taken so far."""
        return self.room.pool.peak * self.room.pool.shape.column_bytes

    def _expire(self) -> None:
        if self.limits.idle_s is not None:
            self.room.expire(self.limits.idle_s)

    def _own(self, session: Session) -> LocalSession:
        if isinstance(session, LocalSession) and session in self.room.sessions:
            return session
        why = session.gone if isinstance(session, LocalSession) else ""
        why = f"it was {why}" if why else "closed, or another engine's"
        raise SessionGone(f"found a session this engine does not hold ({why}); open a new one")

    async def _sampled(self, session: LocalSession, limit: int, deadline: float, listen: Listener | None) -> Completion:
        stop = session.sampling.stop
        stops = StopStrings(self.policy.tokenizer, stop) if stop else None
        return await self._run(session, limit, deadline, listen=listen, stops=stops)

    async def _run(self, session: LocalSession, limit: int, deadline: float, **more: Any) -> Completion:
        """Queue a request and wait for it."""
        columns, tokens = ask.peak(session, limit, ruled=limit > 0), len(session.ids)
        if not self.room.holds(session, columns):
            raise TooLong(
                f"found {tokens} tokens to read and {limit} to sample, which take {columns} columns; expected what the "
                f"cache holds, {self.room.pool.columns}"
            )
        self.schedule.welcome()
        done: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.schedule.submit(Request(session, limit, columns, done, deadline, **more))
        return await done
