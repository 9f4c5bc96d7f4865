"""Who has room in the pool: sessions get columns when a step needs them, and the least recently used give theirs up.

A session without a cache is whole: its tokens and events say everything, and reading them again gives the same cache.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from turnwise.engine import stored
from turnwise.engine.cached import UNREAD, Cached
from turnwise.engine.pool import Extent, Pool
from turnwise.engine.session import LocalSession, common
from turnwise.errors import EngineError

WORTH = 8
"""Copying a shorter prefix than this costs more than reading it."""


@dataclass(slots=True)
class Room:
    """The pool and all sessions of an engine. Between two token borders nothing is moved, freed or given."""

    pool: Pool
    counts: Counter[str]
    query_every: int = 1
    sessions: set[LocalSession] = field(default_factory=set)
    computing: bool = False
    freed: list[Extent] = field(default_factory=list)
    """Extents nobody owns any more, which a forward pass under way may still write to."""

    def size(self, session: LocalSession, columns: int) -> int:
        """Columns of the pool that a session with so many takes at most."""
        sized = self.pool.sized
        return sized(columns) + (sized(self._query_columns(columns)) if session.capture else 0)

    def holds(self, session: LocalSession, columns: int) -> bool:
        """Whether it could ever have so many."""
        return not self.pool.fixed or self.size(session, columns) <= self.pool.columns

    def fit(self, session: LocalSession, columns: int, spare: LocalSession | None = None) -> bool:
        """Give a session room for so many columns, evicting who is idle, `spare` last; False where there is none."""
        assert not self.computing
        cache = session.cache
        if cache and cache.extent.size >= columns and self._queries_fit(session, columns):
            return True
        idle = [s for s in self.sessions if s.cache and not s.busy and s is not session]
        idle.sort(key=lambda s: (s is spare, s.used))
        given = self._take(session, columns)
        for other in idle if self._possible(session, columns, idle) else []:
            if given:
                break
            self.evict(other)
            given = self._take(session, columns)
        if given is None and cache and self.pool.free + self._owned(session) >= self.size(session, columns):
            self.evict(session)
            given = self._take(session, columns)
        if given is not None:
            self._move(session, *given)
        return given is not None

    def _possible(self, session: LocalSession, columns: int, idle: list[LocalSession]) -> bool:
        """Whether evicting all of them would be enough; if not, none is."""
        room = self.pool.free + sum(map(self._owned, idle)) + self._owned(session)
        return room >= self.size(session, columns)

    def _take(self, session: LocalSession, columns: int) -> tuple[Extent, Extent | None] | None:
        extent = self.pool.take(columns)
        if extent is None or not session.capture:
            return None if extent is None else (extent, None)
        queries = self.pool.take(self._query_columns(columns))
        if queries is None:
            self.pool.give(extent)
            return None
        return extent, queries

    def _move(self, session: LocalSession, extent: Extent, queries: Extent | None) -> None:
        """Into larger extents, with all that stands in the old ones."""
        cache = session.cache
        session.cache = Cached(extent, queries) if cache is None else cache
        if cache is None:
            return
        self.pool.copy(cache.extent, extent, 0, cache.columns)
        if cache.queries and queries:
            self._copy_queries(cache, queries, cache.columns)
        self.freed += self._extents(session)
        cache.extent, cache.queries = extent, queries
        self.flush()

    def _copy_queries(self, source: Cached, target: Extent, columns: int) -> None:
        """Those of the first columns, whose places are the same in both."""
        assert source.queries is not None
        count = int(source.asked(self.query_every)[:columns].sum())
        stored.copy(self.pool, source.queries, target, count)

    def share(self, source: LocalSession, target: LocalSession, tokens: int) -> None:
        """Copy the first columns of one session into another, which then holds so many tokens."""
        assert source.cache is not None
        assert target.cache is not None
        begun = target.cache.columns
        self.pool.copy(source.cache.extent, target.cache.extent, begun, tokens)
        if target.cache.queries:
            self._copy_queries(source.cache, target.cache.queries, tokens)
        target.cache.written = tokens
        target.cache.version = source.cache.version
        self.counts["tokens_shared"] += tokens - begun

    def whole(self, source: LocalSession, target: LocalSession) -> bool:
        """Copy everything: a fork. False where there is no room for it now."""
        cache, busy = source.cache, source.busy
        if cache is None:
            return False
        source.busy = True  # evicting it would leave nothing to copy
        fits = self.fit(target, max(cache.columns, len(cache.head_M)) + 1)
        source.busy = busy
        if not fits:
            return False
        assert target.cache is not None
        self.pool.copy(cache.extent, target.cache.extent, 0, cache.columns)
        if target.cache.queries:
            self._copy_queries(cache, target.cache.queries, cache.columns)
        target.cache = cache.twin(target.cache.extent, target.cache.queries)
        self.counts["tokens_shared"] += cache.columns
        return True

    def relative(self, session: LocalSession, version: int) -> tuple[LocalSession | None, int]:
        """The session that holds, or is reading, the longest beginning of this one's tokens, and how much of it."""
        best, most = None, session.written + WORTH - 1
        if session.cache and session.cache.struck:
            return None, 0
        limit = min(len(session.ids) - 1, session.border)
        for other in self.sessions:
            if other is session or not _lends(other, version) or session.capture > other.capture or most >= limit:
                continue
            reading = other.busy and not other.waits and not other.events
            readable = other.border if reading else _plain(other)
            if readable > most and other.ids[most] == session.ids[most]:
                same = min(common(other.ids, session.ids), limit, readable)
                best, most = (other, same) if same > most else (best, most)
        return best, most if best else 0

    def borrow(self, session: LocalSession, source: LocalSession, tokens: int, version: int) -> bool:
        """Copy so many tokens once the source has read them; True while that is worth waiting for."""
        if source not in self.sessions or not _lends(source, version):
            return False
        have = min(_plain(source), common(source.ids, session.ids), tokens)
        if have < tokens and source.busy and common(source.ids, session.ids) >= tokens and not source.events:
            return True
        if have > session.written:
            self.share(source, session, have)
        return False

    def expire(self, idle_s: float) -> None:
        """Close who has been idle for so long."""
        old = time.monotonic() - idle_s
        for session in [s for s in self.sessions if s.used < old and not s.busy and not s.turn.locked()]:
            self.close(session, f"idle for {idle_s:g} seconds")
            self.counts["expired"] += 1

    def evict(self, session: LocalSession) -> None:
        """Take a session's cache; it comes back by reading."""
        assert not session.busy
        self.counts["evicted"] += 1
        self.forget(session)

    def reset(self, session: LocalSession) -> None:
        """Its keys are of other weights: it reads again what it holds, in its place if it is running."""
        if session.cache is None:
            return
        if session.busy:
            session.cache = Cached(session.cache.extent, session.cache.queries)
        else:
            self.forget(session)

    def forget(self, session: LocalSession) -> None:
        """Free a session's columns, at the next border if a forward pass is under way."""
        self.freed += self._extents(session)
        session.cache = None
        if not self.computing:
            self.flush()

    def flush(self) -> None:
        for extent in self.freed:
            self.pool.give(extent)
        self.freed = []

    def close(self, session: LocalSession, why: str) -> None:
        self.sessions.remove(session)
        session.gone = why
        session.busy = False
        self.forget(session)

    def touch(self, session: LocalSession) -> None:
        """It is the most recently used now."""
        session.used = time.monotonic()

    def _query_columns(self, columns: int) -> int:
        each = stored.columns_each(self.pool.shape)
        return each * (-(-columns // self.query_every) + 1)

    def _queries_fit(self, session: LocalSession, columns: int) -> bool:
        queries = session.cache.queries if session.cache else None
        return not session.capture or (queries is not None and queries.size >= self._query_columns(columns))

    @staticmethod
    def _extents(session: LocalSession) -> list[Extent]:
        cache = session.cache
        return [e for e in (cache.extent, cache.queries) if e] if cache else []

    def _owned(self, session: LocalSession) -> int:
        return sum(e.size for e in self._extents(session))

    def check(self) -> None:
        """EngineError where an extent is not owned exactly once, or a session holds more than its extent."""
        try:
            self.pool.check()
            owned = [id(e) for s in self.sessions for e in self._extents(s)] + [id(e) for e in self.freed]
            assert sorted(owned) == sorted(id(e) for e in self.pool.extents), "an extent has no owner, or two"
            assert self.pool.used + self.pool.free == self.pool.columns, "columns do not add up"
            for session in self.sessions:
                self._check(session)
        except AssertionError as error:
            raise EngineError(f"the cache has lost count: {error}") from error

    def _check(self, session: LocalSession) -> None:
        cache = session.cache
        if cache is None:
            return
        assert cache.columns <= cache.extent.size, "a session holds more than its extent"
        assert 0 <= cache.written <= len(session.ids), "a session has read more than it has"
        assert cache.struck <= len(session.events), "a cache has undergone events that are not recorded"
        assert len(cache.tokens_M) == cache.columns, "columns without a token"
        assert (cache.queries is not None) == session.capture, "stored queries without a need"


def _lends(session: LocalSession, version: int) -> bool:
    """Whether its keys are of these weights, or will be."""
    return session.cache is not None and session.cache.version in (version, UNREAD)


def _plain(session: LocalSession) -> int:
    return session.cache.plain if session.cache else 0
