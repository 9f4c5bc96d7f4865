"""What a config says about compaction, as an engine's sessions are opened with it; and what came of it in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.config.compaction import CompactionConfig
from turnwise.kv.columns import REREAD
from turnwise.kv.trigger import Protect, protected
from turnwise.types import (
    Attribution,
    Budget,
    Compaction,
    Event,
    Notice,
    Rule,
    Segments,
    Settings,
    Trajectory,
    Turn,
    Turns,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Compaction but for how many tokens are protected, which a conversation's first prompt decides."""

    rule: Rule
    settings: Settings
    protect: Protect
    notice: Notice | None = None

    def opened(self, said: Attribution) -> Compaction:
        """For a conversation that begins with a prompt."""
        return Compaction(self.rule, self.settings, protected(self.protect, said), self.notice)


def plan(config: CompactionConfig | None) -> Plan | None:
    """None is a cache that holds everything."""
    if config is None:
        return None
    c = config
    settings = Settings(
        method=c.method,
        ratio=c.ratio,
        carry_ratio=c.carry_ratio,
        carry_head=c.carry_head,
        carry_tail=c.carry_tail,
        recent=c.recent,
        ridge=c.ridge,
        bias=c.bias,
        select=c.select,
        per_slot=c.per_slot,
        uniform=c.uniform,
        source=c.source,
    )
    notice = None if c.notice is None else Notice(c.notice.template, c.notice.every)
    protect: Protect = c.protect  # type: ignore[assignment]  # the config has checked it
    return Plan(_rule(c), settings, protect, notice)


def _rule(c: CompactionConfig) -> Rule:
    if c.max_kv_tokens is not None:
        return Budget(c.max_kv_tokens, c.window, c.protect_tokens, c.max_events)
    if c.protect_turns is not None:
        return Turns(c.protect_turns, c.max_events)
    assert c.every is not None, "checked by the config"
    return Segments(c.every, c.window, c.protect_tokens, c.max_events)


def cache_figures(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """The most tokens and slots a cache held, events a rollout, and how well they fitted."""
    peaks = [max(map(peak, t.turns), default=0) for t in trajectories]
    events = [event for t in trajectories for event in fresh(t.turns)]
    found = {
        "cache/peak_mean": sum(peaks) / max(len(peaks), 1),
        "cache/peak_max": float(max(peaks, default=0)),
        "compaction/events": len(events) / max(len(trajectories), 1),
    }
    if not events:
        return found
    sizes = [event.end - event.start for event in events]
    return found | {
        "compaction/kept": sum(event.slots for event in events) / max(sum(sizes), 1),
        "compaction/region": sum(sizes) / len(events),
        "compaction/residual": sum(event.residual for event in events) / len(events),
        "perf/event_ms": sum(event.ms for event in events) / len(events),
    }


def fresh(turns: Sequence[Turn]) -> Iterator[Event]:
    """The events of a conversation, each once: every turn names those before it too."""
    last: dict[str, tuple[Event, ...]] = {}
    for turn in turns:
        known = last.get(turn.agent, ())
        yield from turn.events[len(known) :] if turn.events[: len(known)] == known else turn.events
        last[turn.agent] = turn.events


def peak(turn: Turn) -> int:
    """The most columns its cache held; the token drawn last is not among them, nor what was forced behind it.

    3 read, 4 written, columns (1, 4) to one slot at token 5: 5 before the event, 3 behind it, 4 at the end: 5.
    """
    columns = done = most = 0
    for event in turn.events:
        columns += event.at - done
        most, done = max(most, columns), event.at
        columns = len(event.queries) if event.method == REREAD else columns - (event.end - event.start) + event.slots
    return max(most, columns + _read(turn) - done)


def _read(turn: Turn) -> int:
    """Tokens that were read by the end of a turn: all before the last one that could have been another."""
    size = len(turn.completion_ids)
    free = np.arange(size) if turn.support is None else np.flatnonzero(np.diff(turn.support.offsets) != 1)
    return len(turn.prompt_ids) + int(free[-1] if len(free) else min(size, 1) - 1)
