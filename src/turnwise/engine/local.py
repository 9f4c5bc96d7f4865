"""The built-in engine: any transformers causal model, many sessions decoded together, weights shared with the trainer.

A step joins the running batch at its next token and leaves when it is done. A session keeps its cache between steps and
reads only what is new, the last sampled token included, whose key and value are not written when it is drawn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from turnwise.engine.cache import CacheAttention, Feed, Pool
from turnwise.engine.sample import NOTHING, draw, uniforms
from turnwise.engine.trie import Node, trie
from turnwise.errors import EngineError
from turnwise.model import Policy
from turnwise.types import Completion, Ids, Sampling, Session, Support, TurnStop


@dataclass(slots=True, eq=False)
class LocalSession:
    """All tokens of a conversation; the first `written` have their keys and values in the pool's `slot`."""

    sampling: Sampling
    seed: int
    slot: int
    ids: list[int] = field(default_factory=list)
    written: int = 0
    sampled: int = 0
    busy: bool = False
    twin: LocalSession | None = None
    """A session opened earlier with the same prompt, whose reading of it will be copied."""


@dataclass(slots=True, eq=False)
class _Request:
    """One step of one session, while it is being decoded."""

    session: LocalSession
    max_tokens: int
    node: Node | None
    done: asyncio.Future[Completion]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    supports: list[Ids] = field(default_factory=list)

    def add(self, token: int, logprob: float, support: Ids, version: int) -> TurnStop | None:
        """Record a sampled token; returns why the step ends, if it does."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        self.supports.append(support)
        self.session.ids.append(token)
        self.session.sampled += 1
        if self.node is not None:
            self.node = self.node.children[token]
            if not self.node.children:
                return TurnStop.STOP
        elif token in self.session.sampling.stop_ids:
            return TurnStop.STOP
        return TurnStop.LENGTH if len(self.ids) >= self.max_tokens else None

    def completion(self, stop: TurnStop) -> Completion:
        support = Support.stack(self.supports) if self.session.sampling.restricted else None
        return Completion(
            np.array(self.ids, np.int32),
            np.array(self.logprobs, np.float32),
            np.array(self.versions, np.int32),
            stop,
            support,
        )


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
        self._running: list[_Request] = []
        self._loop: asyncio.Task[None] | None = None

    async def open(self, prompt_ids: Sequence[int], sampling: Sampling, *, seed: int) -> LocalSession:
        ids = self._known(prompt_ids)
        if sampling.choices:
            trie(sampling.choices)  # refuses what is no trie, before anything is held
        twin = self._first.get(ids)
        session = LocalSession(sampling, seed % 2**64, self._pool.take(), list(ids), twin=twin)
        if twin is None:
            self._first[ids] = session
        self._sessions.add(session)
        return session

    async def step(self, session: Session, new_ids: Sequence[int], max_tokens: int | None = None) -> Completion:
        held = self._own(session)
        if held.busy:
            raise EngineError("found a second step on a session whose first still runs; expected one at a time")
        new, limit = self._known(new_ids), held.sampling.max_tokens if max_tokens is None else max_tokens
        tokens = len(held.ids) + len(new)
        if tokens < 1 or limit < 1:
            raise EngineError(f"found {tokens} tokens to read and max_tokens {limit}; expected at least 1")
        held.ids.extend(new)
        before = len(held.ids)
        held.written = min(held.written, before - 1)  # the last token is always read: its logits are what is drawn from
        node = trie(held.sampling.choices) if held.sampling.choices else None
        request = _Request(held, limit, node, asyncio.get_running_loop().create_future())
        self._running.append(request)
        held.busy = True
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._decode())
        try:
            return await request.done
        except asyncio.CancelledError:
            held.sampled -= len(held.ids) - before  # nobody has seen these tokens
            del held.ids[before:]
            held.written = min(held.written, before)
            raise
        finally:
            held.busy = False

    async def fork(self, session: Session, *, seed: int) -> LocalSession:
        held = self._own(session)
        if held.busy:
            raise EngineError("found a fork of a session that is being sampled from; expected it between two steps")
        branch = LocalSession(held.sampling, seed % 2**64, self._pool.take(), list(held.ids))
        self._copy(held, branch, held.written)
        self._sessions.add(branch)
        return branch

    async def close(self, session: Session) -> None:
        held = self._own(session)
        self._sessions.remove(held)
        self._first = {ids: first for ids, first in self._first.items() if first is not held}
        for request in [r for r in self._running if r.session is held]:
            self._running.remove(request)
            if not request.done.done():
                request.done.set_exception(EngineError("the session was closed while it was being sampled from"))
        self._pool.give(held.slot)

    def update(self, version: int) -> None:
        """The shared weights have changed: tokens now carry `version`, and live sessions read again what they hold."""
        self.version = version
        for session in self._sessions:
            session.written = 0

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

    def _own(self, session: Session) -> LocalSession:
        if not isinstance(session, LocalSession) or session not in self._sessions:
            raise EngineError("found a session this engine does not hold (closed, or another engine's); open a new one")
        return session

    async def _decode(self) -> None:
        """Advance all requests token by token until none is left; others join between two tokens."""
        while True:
            await asyncio.sleep(0)  # lets finished episodes act, so that their next steps join this batch
            self._running = [r for r in self._running if not r.done.cancelled()]
            if not self._running:
                return
            try:
                self._advance()
            except Exception as error:  # noqa: BLE001 - it is handed to every caller
                self._fail(error)
                return

    def _fail(self, error: Exception) -> None:
        """A failed forward ends every step that was in it; the callers see the error itself."""
        for request in self._running:
            if not request.done.done():
                request.done.set_exception(error)
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

    def _plan(self) -> tuple[list[_Request], list[Feed], list[int]]:
        """Shortest feeds first, at most `chunk_tokens` together: requests, feeds, and which are read to the end."""
        waiting = [r for r in self._running if not self._awaits_twin(r.session)]
        batch: list[_Request] = []
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

    def _draw(self, requests: list[_Request], hidden_BW: torch.Tensor) -> None:
        if not requests:
            return
        sessions = [r.session for r in requests]
        allowed = [r.node.allowed if r.node else NOTHING for r in requests]
        u = uniforms([s.seed for s in sessions], [s.sampled for s in sessions])
        draws = draw(self.policy.head(hidden_BW), [s.sampling for s in sessions], allowed, u)
        if not np.isfinite(draws.logprobs).all():
            raise EngineError("found log-probabilities that are not finite; the weights hold NaN or infinite numbers")
        self.counts["near_ties"] += draws.near
        for request, token, logprob, support in zip(requests, draws.ids, draws.logprobs, draws.supports, strict=True):
            self._record(request, token, logprob, support)

    def _record(self, request: _Request, token: int, logprob: float, support: Ids) -> None:
        """Add a drawn token, and after it all that the trie leaves no choice about, unread until the next forward."""
        stop = request.add(token, logprob, support, self.version)
        while stop is None and request.node is not None and len(request.node.children) == 1:
            only = request.node.allowed
            stop = request.add(int(only[0]), 0.0, only, self.version)
            self.counts["tokens_forced"] += 1
        self.counts["tokens_sampled"] += 1
        if stop is not None:
            self._running.remove(request)
            if not request.done.done():
                request.done.set_result(request.completion(stop))
