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

import torch

from turnwise.engine import sample
from turnwise.engine.limits import Limits
from turnwise.engine.pool import Pool, Shape
from turnwise.engine.request import Request
from turnwise.engine.room import Room
from turnwise.engine.schedule import Schedule
from turnwise.engine.session import Before, LocalSession
from turnwise.engine.stops import StopStrings
from turnwise.engine.trie import trie
from turnwise.errors import EngineError, EngineFull, SessionGone, TooLong
from turnwise.model import Policy, parameters, reload
from turnwise.model.attention import causal
from turnwise.model.packed import forget, sampler
from turnwise.types import Compaction, Completion, Event, Listener, Sampling, Session, Settings

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
)


class LocalEngine:
    """Implements types.Engine over a policy in this process."""

    def __init__(self, policy: Policy, limits: Limits | None = None) -> None:
        self.policy = policy
        self.limits = limits = limits or Limits()
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        pool = Pool.of(_shape(policy), limits.max_cache_bytes, limits.max_cache_tokens)
        self.room = Room(pool, self.counts, limits.query_every)
        mixed = limits.mixed(parameters(policy.model), policy.device.type)
        self.schedule = Schedule(sampler(policy), self.room, limits, mixed, self.counts)
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
        if compaction is not None:
            raise EngineError("found compaction, which this engine cannot do yet; open the session without")
        ids = self._known(prompt_ids)
        self._check(sampling)
        return self._hold(LocalSession(sampling, seed % 2**64, list(ids), client))

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
        held, new = self._own(session), self._known(new_ids)
        deadline = float("inf") if deadline_s is None else asyncio.get_running_loop().time() + deadline_s
        if sampling is not None:
            self._check(sampling)
        async with held.turn:
            self._own(session)  # it may have been closed while this step queued
            kept = held.kept(new) if whole else len(held.ids)
            ids = [*held.ids[:kept], *(new[kept:] if whole else new)]
            asked = (sampling or held.sampling).max_tokens if max_tokens is None else max_tokens
            limit = self._limit(held, len(ids), asked)
            self.schedule.welcome()
            before = Before.of(held, kept)
            self._rewind(held, ids, min(kept, len(ids) - 1))
            held.reseed(sampling, seed)
            try:
                return await self._sampled(held, limit, deadline, listen)
            except asyncio.CancelledError:
                if not before.restore(held):  # nobody has seen these tokens
                    self.room.forget(held)
                raise

    def _rewind(self, session: LocalSession, ids: list[int], kept: int) -> None:
        """Give a session other tokens, of which its cache may keep the first."""
        session.ids, session.reached = ids, min(session.reached, kept)
        session.events = [event for event in session.events if event.at <= kept]
        if session.cache and not (session.cache.struck <= len(session.events) and session.cache.cut(kept)):
            self.room.forget(session)

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
            branch = LocalSession(
                held.sampling, seed % 2**64, list(held.ids), held.client, held.compaction, held.capture
            )
            branch.events, branch.reached = list(held.events), held.reached
            self._hold(branch)
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
            reload(self.policy, folder)
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
        pool, sessions = self.room.pool, self.room.sessions
        stale = [s for s in sessions if s.cache and 0 <= s.cache.version < self.version]
        gauges = {
            "sessions": len(sessions),
            "sessions_cached": sum(s.cache is not None for s in sessions),
            "sessions_stale": len(stale),
            "running": len(self.schedule.running),
            "waiting": len(self.schedule.line),
            "paused": int(not self.schedule.go.is_set()),
            "version": self.version,
            "cache_bytes": pool.used * pool.shape.column_bytes,
            "cache_peak_bytes": self.cache_bytes,
            "cache_limit_bytes": pool.columns * pool.shape.column_bytes if pool.fixed else float("inf"),
        }
        return {name: float(value) for name, value in (dict(self.counts) | gauges).items()}

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

    def _limit(self, session: LocalSession, tokens: int, limit: int) -> int:
        """How many tokens may be sampled after so many, at most `limit`."""
        if tokens < 1 or limit < 1:
            raise EngineError(f"found {tokens} tokens to read and max_tokens {limit}; expected at least 1")
        if tokens >= self.policy.context:
            raise TooLong(f"found {tokens} tokens to read; expected fewer than the model's {self.policy.context}")
        limit = min(limit, self.policy.context - tokens)
        if not self.room.holds(session, tokens + limit):
            raise TooLong(
                f"found {tokens} tokens to read and {limit} to sample; expected together at most what the cache "
                f"holds, {self.room.pool.columns}"
            )
        return limit

    def _own(self, session: Session) -> LocalSession:
        if isinstance(session, LocalSession) and session in self.room.sessions:
            return session
        why = session.gone if isinstance(session, LocalSession) else ""
        why = f"it was {why}" if why else "closed, or another engine's"
        raise SessionGone(f"found a session this engine does not hold ({why}); open a new one")

    async def _sampled(self, session: LocalSession, limit: int, deadline: float, listen: Listener | None) -> Completion:
        """Queue a request and wait for it."""
        stop, done = session.sampling.stop, asyncio.get_running_loop().create_future()
        stops = StopStrings(self.policy.tokenizer, stop) if stop else None
        request = Request(session, limit, len(session.ids) + limit, done, deadline, listen, stops)
        self.schedule.submit(request)
        completion: Completion = await done
        return completion


@torch.inference_mode()
def _shape(policy: Policy) -> Shape:
    """What the model writes for a token, seen in a forward pass of one."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def spy(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        seen.append((q, k))
        return causal(layer, q, k, v, scale)

    zero = torch.zeros(1, 1, dtype=torch.long, device=policy.device)
    policy.hidden(zero, zero, spy)
    q, k = seen[0]
    return Shape(len(seen), k.shape[1], q.shape[1] // k.shape[1], k.shape[3], k.dtype, k.device)
