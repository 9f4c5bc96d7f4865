"""When a session's cache is compacted: its history and its rule in, what is to be struck out.

A rule is asked at gates, token numbers at which reading stops: before what a step adds, while it decodes, at its end.
So it does not matter in how large pieces a prompt is read, and what is asked depends on nothing but the session.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnwise.engine.cached import Cached
from turnwise.engine.request import Request
from turnwise.engine.session import LocalSession
from turnwise.kv import trigger
from turnwise.kv.columns import REREAD
from turnwise.kv.trigger import Held
from turnwise.types import Budget, Event, Segments, Settings, Turns


@dataclass(frozen=True, slots=True)
class Due:
    """Columns of a session that are to be struck out; `forced` is the event that is repeated, if it is one."""

    session: LocalSession
    cache: Cached
    """The session's, which a thread may go on writing to when the session has given it up."""
    region: tuple[int, int]
    settings: Settings
    trigger: str
    forced: Event | None = None


def struck(now: Held, event: Event) -> Held:
    """A cache after one of its events."""
    if event.method != REREAD:
        return now.after((event.start, event.end), event.slots)
    carried = len(event.queries) - (now.columns - (event.end - event.start))
    return replace(now.after((event.start, event.end), max(0, carried)), columns=len(event.queries))


def held(session: LocalSession, tokens: int) -> Held:
    """The cache once so many tokens have been read, by the session's history: whether it stands or not."""
    protect = session.compaction.protect if session.compaction else 0
    now, done = Held(0, protect), 0
    for event in [*session.events, None]:
        at = tokens if event is None else event.at
        begun = tuple(max(protect, now.columns + m - done) for m in session.marks if done <= m < at)
        now = replace(now, columns=now.columns + at - done, turns=(*now.turns, *begun))
        now, done = struck(now, event) if event else now, at
    return now


def past(session: LocalSession) -> int:
    """The most columns its cache had before any of its events: reading it again takes as many."""
    now, done, most = Held(0), 0, 0
    for event in session.events:
        now = replace(now, columns=now.columns + event.at - done)
        most = max(most, now.columns)
        now, done = struck(now, event), event.at
    return most


def peak(session: LocalSession, max_tokens: int, *, ruled: bool) -> int:
    """The most columns a step may come to, or reading its past again may; `ruled` says whether its rule is heeded."""
    rule = session.compaction.rule if session.compaction else None
    read = min(session.reached, len(session.ids) - 1)
    now, more = held(session, read), len(session.ids) - read + max_tokens
    if not ruled or not isinstance(rule, Budget) or rule.max_events is not None or session.compaction is None:
        return max(past(session), now.columns + more)
    most, settings = now.columns, session.compaction.settings
    while more:
        fits = min(more, max(0, rule.max_kv_tokens - now.columns))
        now, more = replace(now, columns=now.columns + fits), more - fits
        region = trigger.budget(replace(now, adding=more), rule, settings) if more else None
        if region is None:
            most, more = max(most, now.columns + more), 0
        else:
            most = max(most, now.columns)
            size = region[1] - region[0]
            kept = settings.carry_head + settings.carry_tail if settings.method == REREAD else settings.slots(size)
            now = now.after(region, min(kept, size))
    return max(past(session), most)


def begin(request: Request) -> None:
    """Where a step's rule is asked first: before what it adds, or where a first prompt fills the cache."""
    session = request.session
    rule = session.compaction.rule if session.compaction else None
    if request.settings is not None:
        session.gates = [len(session.ids) - 1]
    elif isinstance(rule, Budget):
        first = session.reached or rule.max_kv_tokens
        session.gates = [first] if first < len(session.ids) and _full(session, rule, first) else []


def drawn(session: LocalSession) -> None:
    """A token has been sampled: is there something to ask before it is read?"""
    rule = session.compaction.rule if session.compaction else None
    if isinstance(rule, Segments) and session.drawn % rule.every == 0:
        session.gates.append(len(session.ids) - 1)


def gate(session: LocalSession) -> None:
    """Whether a budget has to be asked before what is unread is read."""
    rule = session.compaction.rule if session.compaction else None
    cache = session.cache
    if not isinstance(rule, Budget) or session.gates or cache is None:
        return
    if cache.columns + len(session.ids) - cache.written > rule.max_kv_tokens:
        session.gates.append(cache.written)


def ended(session: LocalSession) -> None:
    """The response is complete."""
    rule = session.compaction.rule if session.compaction else None
    session.gates = [len(session.ids) - 1] if isinstance(rule, Turns) else []


def _full(session: LocalSession, rule: Budget, read: int) -> bool:
    return held(session, read).columns + len(session.ids) - read > rule.max_kv_tokens


def due(request: Request) -> Due | None:
    """What is to be struck before the session reads on; gates at which there is nothing to do are passed."""
    session, cache = request.session, request.session.cache
    if cache is None or cache.missing:
        return None
    if cache.struck < len(session.events):
        event = session.events[cache.struck]
        settings = session.settings[cache.struck]
        if cache.written < event.at:
            return None
        return Due(session, cache, (event.start, event.end), settings, event.trigger, event)
    while session.gates and session.gates[0] <= cache.written:
        region = _asked(request)
        if region is not None:
            settings = request.settings or (session.compaction.settings if session.compaction else Settings())
            return Due(session, cache, region, settings, _name(request))
    return None


def _asked(request: Request) -> tuple[int, int] | None:
    """The region; where there is none, the gate is passed. A budget that is not yet used up has another behind it."""
    session = request.session
    gate = session.gates[0]
    now = replace(held(session, gate), adding=len(session.ids) - gate)
    rule = session.compaction.rule if session.compaction else None
    settings = session.compaction.settings if session.compaction else Settings()
    if request.settings is not None:
        return request.region
    if isinstance(rule, Segments):
        region = trigger.segments(replace(now, sampled=rule.every), rule, settings)
    elif isinstance(rule, Turns):
        region = trigger.turns(now, rule, settings)
    else:
        assert rule is not None
        region = trigger.budget(now, rule, settings)
        room = rule.max_kv_tokens - now.columns
        if region is None and 0 < room < now.adding:
            session.gates.insert(1, gate + room)
    if region is None:
        session.gates.pop(0)
    return region


def answered(session: LocalSession, strike: Due) -> None:
    """A strike has been carried out: turns are asked again until nothing is left to do, a budget when it is used up."""
    rule = session.compaction.rule if session.compaction else None
    if strike.trigger in ("segments", "asked"):
        session.gates.pop(0)
    elif isinstance(rule, Budget):
        gate = session.gates[0]
        room = rule.max_kv_tokens - held(session, gate).columns
        session.gates[0] = gate + max(0, min(room, len(session.ids) - gate))


def _name(request: Request) -> str:
    if request.settings is not None or request.session.compaction is None:
        return "asked"
    return type(request.session.compaction.rule).__name__.lower()
