"""Advances all steps under way token by token: who is admitted, what each forward pass reads, who is done.

Everything is decided and changed at a token border, on the event loop; only the computation between two borders may run
in a thread. Others join and leave at borders, and nothing waits in a time window.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turnwise.engine import ask
from turnwise.engine.ask import Due
from turnwise.engine.batch import Batch, assemble, compute, plan
from turnwise.engine.limits import Limits
from turnwise.engine.line import Line
from turnwise.engine.request import Request
from turnwise.engine.room import Room
from turnwise.engine.sample import Draw, Draws
from turnwise.engine.strikes import COLUMNS_A_TOKEN, Strikes
from turnwise.errors import EngineError, EngineFull
from turnwise.model import Policy
from turnwise.types import TurnStop

T = TypeVar("T")


@dataclass(slots=True)
class Schedule:
    """The steps of an engine, waiting in line or running."""

    policy: Policy
    room: Room
    limits: Limits
    strikes: Strikes
    mixed: int
    counts: Counter[str]
    version: int = 0
    line: Line = field(default_factory=Line)
    running: list[Request] = field(default_factory=list)
    border: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while something is computed: who holds it may move, copy and free what is in the cache."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    thread: ThreadPoolExecutor | None = None
    task: asyncio.Task[None] | None = None
    broken: EngineError | None = None
    """What an idle check found wrong."""

    def welcome(self) -> None:
        """Refuse a step that cannot even wait."""
        if self.broken:
            raise self.broken
        most, spare = self.limits.max_queued, self.limits.max_running - len(self.running)
        if most is not None and len(self.line) >= most + spare:
            raise EngineFull(f"found {most} steps waiting, all that may; come again")

    def submit(self, request: Request) -> None:
        """Queue a step; it joins the running ones at the next border at which there is room."""
        self.line.join(request)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._advance())

    async def _advance(self) -> None:
        """Go on until no step is left."""
        while True:
            await asyncio.sleep(0)  # lets finished episodes act, so that their next steps join this batch
            self._drop()
            if not self.running and not self.line:
                return self._idle()
            if not self.go.is_set():
                await self.go.wait()
                continue
            try:
                async with self.border:
                    await self._forward()
            except Exception as error:  # noqa: BLE001 - it is handed to every caller
                return self._fail(error)

    async def _forward(self) -> None:
        """From one border to the next."""
        self._drop()  # waiting for the border, someone may have left
        self.admit()
        await self._strike()
        self._finish()
        if not self.running:
            return
        waiting = [r for r in self.running if not self._borrows(r)]
        planned = plan(waiting, self.limits.chunk_tokens, self.mixed)
        assert planned or any(r.session.left == 0 for r in self.running), "no step can go on"
        if not planned:
            return
        batch = assemble(self.room.pool, planned, self.limits.query_every)
        draws = await self.compute(compute, self.policy, batch)
        self._commit(batch, [count for _, count in planned], draws)

    async def _strike(self) -> None:
        """Compact what is due, as much at a time as takes no longer than a forward pass that reads beside others."""
        for group in self.strikes.due(self.running, COLUMNS_A_TOKEN * self.mixed):
            await self._struck(group)
            self._drop()  # meanwhile someone may have left

    async def _struck(self, group: list[Due]) -> None:
        """Compact those that are still wanted, and tell them how many tokens are left."""
        running = {request.session: request for request in self.running}
        wanted = [strike for strike in group if strike.session in running]
        for strike in wanted:
            strike.session.striking = True
        for one in await self.compute(self.strikes.carry_out, wanted) if wanted else []:
            request = running[one.strike.session]
            if self.strikes.commit(one) and request.ids and not request.done.done():
                self.strikes.notice(request, self.version, after_event=True)
                ask.gate(request.session)

    def _finish(self) -> None:
        """Those that were only waiting for an event at their end."""
        for request in [r for r in self.running if r.ending is not None and not r.session.gates]:
            self._end(request)

    def _end(self, request: Request) -> None:
        assert request.ending is not None
        request.finish(request.ending)
        self.leave(request)

    async def compute(self, work: Callable[..., T], *args: Any) -> T:
        """Between two borders: in the thread, if there is one."""
        if self.thread is None:
            return work(*args)
        self.room.computing = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, work, *args)
        finally:
            self.room.computing = False
            self.room.flush()

    def admit(self) -> None:
        """Let in those at the head of the line, as long as there is room for all that they may need."""
        while (head := self.line.head()) and len(self.running) < self.limits.max_running:
            ask.begin(head)
            source, common = self.room.relative(head.session, self.version)
            if not self.room.fit(head.session, head.columns, source):
                break
            head.source, head.common = source, common
            head.session.waits = source is not None
            head.session.busy = True
            self.running.append(self.line.admit())
        for request in self.line:
            self.counts["queued"] += not request.queued
            request.queued = True

    def _borrows(self, request: Request) -> bool:
        """Whether it waits for another session to read what both have in common."""
        if request.source is None:
            return False
        waits = self.room.borrow(request.session, request.source, request.common, self.version)
        request.source = request.source if waits else None
        request.session.waits = waits
        return waits

    def _commit(self, batch: Batch, read: list[int], draws: Draws) -> None:
        self.counts["forwards"] += 1
        self.counts["tokens_read"] += len(batch.ids)
        self.counts["near_ties"] += draws.near
        for request, count in zip(batch.requests, read, strict=True):
            session = request.session
            if request.done.done() or session.cache is None:
                continue
            again = min(session.reached, session.written + count) - session.written
            self.counts["tokens_replayed"] += count if session.cache.missing else max(0, again)
            session.cache.read(count, self.version)
            session.reached = max(session.reached, session.written)
        for request, one in zip(batch.drawing.requests, draws.each, strict=True):
            if not request.done.done():
                self._record(request, one)

    def _record(self, request: Request, one: Draw) -> None:
        """Add a drawn token, and after it all that the trie leaves no choice about, unread until the next forward."""
        stop = request.add(one, self.version)
        ask.drawn(request.session)
        while stop is None and request.node is not None and len(request.node.children) == 1:
            only = request.node.allowed
            stop = request.add(Draw(int(only[0]), 0.0, only), self.version)
            ask.drawn(request.session)
            self.counts["tokens_forced"] += 1
        self.counts["tokens_sampled"] += 1
        request.ending = stop
        if stop is None:
            self.strikes.notice(request, self.version, after_event=False)
            ask.gate(request.session)
        else:
            ask.ended(request.session)
            if not request.session.gates:
                self._end(request)

    def leave(self, request: Request) -> None:
        """A step is over: its session keeps its cache until someone else needs the room."""
        if request in self.running:
            self.running.remove(request)
            request.session.busy = request.session.waits = False
            request.session.gates = []
            self.room.touch(request.session)

    def _drop(self) -> None:
        """Leave out requests nobody waits for, and end those whose time is over."""
        now = asyncio.get_running_loop().time()
        for request in [r for r in (*self.running, *self.line) if r.deadline <= now]:
            request.finish(TurnStop.DEADLINE)
        for request in [r for r in self.running if r.done.done()]:
            self.leave(request)
        self.line.drop()

    def end(self, error: Exception, *, of: set[object]) -> None:
        """Fail the steps of some sessions."""
        for request in [r for r in (*self.running, *self.line) if r.session in of]:
            request.fail(error)

    def _fail(self, error: Exception) -> None:
        """A failed forward ends every step there is; the callers see the error itself, and caches may hold anything."""
        for request in (*self.running, *self.line):
            request.fail(error)
        for request in list(self.running):
            self.leave(request)
        self.line.drop()
        for session in self.room.sessions:
            session.striking = False
            self.room.forget(session)
        self.room.pool.wipe()

    def _idle(self) -> None:
        try:
            self.room.check()
        except EngineError as error:
            self.broken = error
