"""The built-in engine: any transformers causal model, many sessions decoded together, weights shared with the trainer.

A step joins the running batch at its next token and leaves when it is done. A session keeps its cache between steps and
reads only what is new, the last sampled token included, whose key and value are not written when it is drawn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from turnwise.engine import sample
from turnwise.engine.cache import CacheAttention, Feed, Pool
from turnwise.engine.sample import NOTHING, Draw, draw, uniforms
from turnwise.engine.session import Before, LocalSession, Request
from turnwise.engine.stops import StopStrings
from turnwise.engine.trie import trie
from turnwise.errors import EngineError, TooLong
from turnwise.model import Policy, reload
from turnwise.types import Compaction, Completion, Event, Listener, Sampling, Session, Settings, TurnStop


class LocalEngine:
    """Implements types.Engine over a policy in this process."""

    def __init__(self, policy: Policy, *, chunk_tokens: int = 8192) -> None:
        self.policy = policy
        self.chunk_tokens = chunk_tokens
        self.version = 0
        names = ("tokens_read", "tokens_shared", "tokens_sampled", "tokens_forced", "forwards", "near_ties")
        self.counts: Counter[str] = Counter(dict.fromkeys(names, 0))
        self._pool = Pool()
        self._sessions: set[LocalSession] = set()
        self._first: dict[tuple[int, ...], LocalSession] = {}
        self._running: list[Request] = []
        self._loop: asyncio.Task[None] | None = None
        self._go = asyncio.Event()
        self._go.set()

    async def open(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        client: str = "",
        compaction: Compaction | None = None,
    ) -> LocalSession:
        if compaction is not None:
            raise EngineError("found compaction, which this engine cannot do yet; open the session without")
        ids = self._known(prompt_ids)
        self._check(sampling)
        twin = self._first.get(ids)
        session = LocalSession(sampling, seed % 2**64, self._pool.take(), list(ids), client, twin=twin)
        if twin is None:
            self._first[ids] = session
        self._sessions.add(session)
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
        held, new = self._own(session), self._known(new_ids)
        deadline = float("inf") if deadline_s is None else asyncio.get_running_loop().time() + deadline_s
        if sampling is not None:
            self._check(sampling)
        async with held.turn:
            self._own(session)  # it may have been closed while this step queued
            kept = held.kept(new) if whole else len(held.ids)
            ids = [*held.ids[:kept], *(new[kept:] if whole else new)]
            asked = (sampling or held.sampling).max_tokens if max_tokens is None else max_tokens
            limit = self._room(len(ids), asked)
            before = Before.of(held, kept)
            held.ids, held.written = ids, min(held.written, kept, len(ids) - 1)
            held.reseed(sampling, seed)
            try:
                return await self._sampled(held, limit, deadline, listen)
            except asyncio.CancelledError:
                before.restore(held)  # nobody has seen these tokens
                raise

    async def compact(
        self,
        session: Session,
        region: tuple[int, int] | None = None,  # noqa: ARG002
        settings: Settings | None = None,  # noqa: ARG002
    ) -> Event | None:
        self._own(session)
        raise EngineError("found a call for compaction, which this engine cannot do yet")

    async def fork(self, session: Session, *, seed: int) -> LocalSession:
        held = self._own(session)
        async with held.turn:
            self._own(session)
            branch = LocalSession(held.sampling, seed % 2**64, self._pool.take(), list(held.ids), held.client)
            self._copy(held, branch, held.written)
            self._sessions.add(branch)
            return branch

    async def close(self, session: Session) -> None:
        held = self._own(session)
        self._sessions.remove(held)
        self._first = {ids: first for ids, first in self._first.items() if first is not held}
        for request in [r for r in self._running if r.session is held]:
            self._running.remove(request)
            request.fail(EngineError("the session was closed while it was being sampled from"))
        self._pool.give(held.slot)

    async def pause(self) -> None:
        self._go.clear()

    async def resume(self) -> None:
        self._go.set()

    async def load(self, folder: Path, version: int) -> None:
        reload(self.policy, folder)
        self.update(version)

    def update(self, version: int) -> None:
        """The shared weights have changed: tokens now carry `version`, and live sessions read again what they hold."""
        self.version = version
        for session in self._sessions:
            session.written = 0

    def stats(self) -> Mapping[str, float]:
        gauges = {
            "sessions": len(self._sessions),
            "running": len(self._running),
            "paused": int(not self._go.is_set()),
            "version": self.version,
            "cache_bytes": self.cache_bytes,
        }
        return {name: float(value) for name, value in (self.counts | gauges).items()}

    @property
    def cache_bytes(self) -> int:
        return self._pool.bytes

    def _copy(self, source: LocalSession, target: LocalSession, tokens: int) -> None:
        self._pool.copy(source.slot, target.slot, tokens)
        target.written = tokens
        self.counts["tokens_shared"] += tokens

    def _known(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Refuse a token the model does not have: it would fail the whole batch."""
        known = tuple(int(i) for i in ids)
        if known and not (min(known) >= 0 and max(known) < self.policy.vocab):
            raise EngineError(f"found token ids {min(known)} to {max(known)}; expected 0 to {self.policy.vocab - 1}")
        return known

    def _check(self, sampling: Sampling) -> None:
        """Refuse what cannot be sampled from, before anything is held."""
        sample.check(sampling, self.policy.vocab)
        if sampling.choices:
            trie(sampling.choices)

    def _room(self, tokens: int, limit: int) -> int:
        """How many tokens may be sampled after so many, at most `limit`."""
        if tokens < 1 or limit < 1:
            raise EngineError(f"found {tokens} tokens to read and max_tokens {limit}; expected at least 1")
        if tokens >= self.policy.context:
            raise TooLong(f"found {tokens} tokens to read; expected fewer than the model's {self.policy.context}")
        return min(limit, self.policy.context - tokens)

    def _own(self, session: Session) -> LocalSession:
        if not isinstance(session, LocalSession) or session not in self._sessions:
            raise EngineError("found a session this engine does not hold (closed, or another engine's); open a new one")
        return session

    async def _sampled(self, session: LocalSession, limit: int, deadline: float, listen: Listener | None) -> Completion:
        """Queue a request and wait for it."""
        stop, done = session.sampling.stop, asyncio.get_running_loop().create_future()
        stops = StopStrings(self.policy.tokenizer, stop) if stop else None
        request = Request(session, limit, done, deadline, listen, stops)
        self._running.append(request)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._decode())
        completion: Completion = await done
        return completion

    async def _decode(self) -> None:
        """Advance all requests token by token until none is left; others join between two tokens."""
        while True:
            await asyncio.sleep(0)  # lets finished episodes act, so that their next steps join this batch
            self._drop()
            if not self._running:
                return
            if not self._go.is_set():
                await self._go.wait()
                continue
            try:
                self._advance()
            except Exception as error:  # noqa: BLE001 - it is handed to every caller
                self._fail(error)
                return

    def _drop(self) -> None:
        """Leave out requests nobody waits for, and end those whose time is over."""
        now = asyncio.get_running_loop().time()
        for request in [r for r in self._running if r.deadline <= now]:
            request.finish(TurnStop.DEADLINE)
        self._running = [r for r in self._running if not r.done.done()]

    def _fail(self, error: Exception) -> None:
        """A failed forward ends every step that was in it; the callers see the error itself."""
        for request in self._running:
            request.fail(error)
        self._running = []

    @torch.inference_mode()
    def _advance(self) -> None:
        """One forward pass: read what each session has not, then draw a token where all is read."""
        batch, feeds, ready = self._plan()
        attend = CacheAttention(self._pool, feeds, self.policy.device)
        ids = [i for r, f in zip(batch, feeds, strict=True) for i in r.session.ids[f.written : f.written + f.count]]
        hidden = self.policy.hidden(torch.tensor([ids], device=self.policy.device), attend.positions, attend)[0]
        for request, feed in zip(batch, feeds, strict=True):
            request.session.written += feed.count
        self.counts["tokens_read"] += len(ids)
        self.counts["forwards"] += 1
        ends = np.cumsum([f.count for f in feeds]) - 1
        self._draw([batch[i] for i in ready], hidden[torch.from_numpy(ends[ready]).to(hidden.device)])

    def _plan(self) -> tuple[list[Request], list[Feed], list[int]]:
        """Shortest feeds first, at most `chunk_tokens` together: requests, feeds, and which are read to the end."""
        waiting = [r for r in self._running if not self._awaits_twin(r.session)]
        batch: list[Request] = []
        feeds: list[Feed] = []
        ready, room = [], self.chunk_tokens
        for request in sorted(waiting, key=lambda r: len(r.session.ids) - r.session.written):
            left = len(request.session.ids) - request.session.written
            count = min(left, room)
            if count == 0:
                break
            if count == left:
                ready.append(len(batch))
            batch.append(request)
            feeds.append(Feed(request.session.slot, request.session.written, count))
            room -= count
        return batch, feeds, ready

    def _awaits_twin(self, session: LocalSession) -> bool:
        """Copy what an equal prompt's session has read, all but the last token, whose logits are wanted; wait for it
        while it is being read."""
        twin, known = session.twin, len(session.ids) - 1
        if twin is None or session.written or twin not in self._sessions or twin.ids[:known] != session.ids[:known]:
            return False
        if twin.written >= known:
            self._copy(twin, session, known)
            session.twin = None
            return False
        return any(r.session is twin for r in self._running)

    def _draw(self, requests: list[Request], hidden_BW: torch.Tensor) -> None:
        if not requests:
            return
        sessions = [r.session for r in requests]
        allowed = [r.node.allowed if r.node else NOTHING for r in requests]
        u = uniforms([s.seed for s in sessions], [s.sampled for s in sessions])
        draws = draw(self.policy.head(hidden_BW), [s.sampling for s in sessions], allowed, u)
        if not np.isfinite([d.logprob for d in draws.each]).all():
            raise EngineError("found log-probabilities that are not finite; the weights hold NaN or infinite numbers")
        self.counts["near_ties"] += draws.near
        for request, one in zip(requests, draws.each, strict=True):
            self._record(request, one)

    def _record(self, request: Request, one: Draw) -> None:
        """Add a drawn token, and after it all that the trie leaves no choice about, unread until the next forward."""
        stop = request.add(one, self.version)
        while stop is None and request.node is not None and len(request.node.children) == 1:
            only = request.node.allowed
            stop = request.add(Draw(int(only[0]), 0.0, only), self.version)
            self.counts["tokens_forced"] += 1
        self.counts["tokens_sampled"] += 1
        if stop is not None:
            self._running.remove(request)
            request.finish(stop)
