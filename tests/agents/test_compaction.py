"""What a config says about compaction reaches sessions, and what came of it is told in numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from toy import Toy

from played import played, tight, turn
from turnwise.agents import Limits, plan, play
from turnwise.agents.compaction import cache_figures, fresh, peak
from turnwise.agents.sampling import sampling
from turnwise.config import RunConfig
from turnwise.config.compaction import CompactionConfig
from turnwise.config.run import SamplingConfig
from turnwise.testing import FakeEngine, FakeSession, byte_tokenizer
from turnwise.text import ChatML
from turnwise.types import Attribution, Budget, Compaction, Event, Notice, Segments, Settings, Task, Trajectory, Turns

CHATML = ChatML(byte_tokenizer())
SAID = Attribution(np.array([0, 0, 0, 1, 1, -1], np.int32), np.ones(6, np.int8), ("system", "user"), (None, None))


def opened(**said: Any) -> Compaction:
    found = plan(CompactionConfig(**said))
    assert found is not None
    return found.opened(SAID)


def test_every_trigger_becomes_its_rule() -> None:
    assert opened(max_kv_tokens=90, window=20, protect_tokens=5, max_events=3).rule == Budget(90, 20, 5, 3)
    assert opened(trigger="turns", protect_turns=0).rule == Turns(0)
    assert opened(trigger="segments", every=8, window=4).rule == Segments(8, 4)


def test_what_is_said_of_the_method_becomes_settings() -> None:
    assert opened(max_kv_tokens=90).settings == Settings()
    told = {"ratio": 0.5, "recent": 3, "ridge": 0.1, "per_slot": 9, "source": "suffix", "select": "omp", "bias": True}
    assert opened(max_kv_tokens=90, **told, uniform=False).settings == Settings(**told, uniform=False)
    reread = {"method": "delete_reread", "carry_head": 2, "carry_tail": 3}
    assert opened(max_kv_tokens=90, **reread).settings == Settings(**reread)
    assert opened(max_kv_tokens=90, notice={"every": 4}).notice == Notice(every=4)


@pytest.mark.parametrize(("protect", "tokens"), [("system", 3), ("first_user", 5), (4, 4), ("4", 4), (90, 6)])
def test_who_is_protected_is_counted_in_the_first_prompt(protect: Any, tokens: int) -> None:
    assert opened(max_kv_tokens=200, protect=protect).protect == tokens


def test_a_run_without_compaction_has_none() -> None:
    assert plan(RunConfig().rollout.compaction) is None


class Listening(FakeEngine):
    """Keeps what sessions were opened with."""

    def __init__(self) -> None:
        super().__init__([CHATML.tokenizer.encode("stop<|im_end|>")])
        self.heard: list[Any] = []

    async def open(self, *args: Any, compaction: Compaction | None = None, **more: Any) -> FakeSession:
        self.heard.append(compaction)
        return await super().open(*args, **more)


def test_an_episode_opens_its_session_with_the_plan() -> None:
    engine, free = Listening(), sampling(SamplingConfig(), CHATML)
    asked = plan(CompactionConfig(trigger="turns", protect_turns=1, protect="first_user"))
    for one in (None, asked):
        empty = Trajectory("toy", Task("t", {"n": 3}), 0, 0, 11)
        asyncio.run(play(Toy([]), empty, engine, CHATML, free, Limits(9, 999, 9.0), one))
    told = len(empty.turns[0].prompt_ids) - len(CHATML.tokenizer.encode("<|im_start|>assistant\n"))
    assert engine.heard == [None, Compaction(Turns(1), Settings(), engine.heard[1].protect)]
    assert told - 1 <= engine.heard[1].protect <= told


def event(at: int, start: int, end: int, slots: int, **more: Any) -> Event:
    none = np.zeros(0, np.int32)
    return Event(at, start, end, more.pop("method", "match"), np.zeros((2, 1, slots), np.int16), none, **more)


def test_the_peak_of_a_cache_is_before_an_event_or_at_the_end() -> None:
    assert peak(turn([1, 2, 3], [4, 5])) == 4
    assert peak(turn([1, 2, 3], [4, 5, 6, 7], events=(event(5, 1, 4, 1),))) == 5
    assert peak(turn([1, 2, 3], [4] * 9, events=(event(5, 1, 4, 1), event(8, 1, 6, 0)))) == 6
    forced = turn([1, 2, 3], [4, 5, 6], support=tight([4, 9], [5], [6]))
    assert peak(forced) == peak(turn([1, 2, 3], [4])) == peak(turn([1, 2, 3, 4], [])) == 3
    again = Event(5, 1, 4, "delete_reread", np.zeros((2, 1, 0), np.int16), np.array([0, 4], np.int32))
    assert peak(turn([1, 2, 3], [4] * 9, events=(again,))) == 2 + 6


def test_events_are_counted_once_though_later_turns_name_them_too() -> None:
    a, b, c = event(5, 1, 4, 1, residual=0.5, ms=2.0), event(8, 1, 5, 2, residual=0.1), event(3, 0, 2, 0)
    turns = [
        turn([1] * 4, [2] * 3, events=(a,)),
        turn([1] * 8, [2] * 3, events=(a, b)),
        turn([7], [2] * 9, events=(c,)),
    ]
    assert list(fresh(turns)) == [a, b, c]
    found = cache_figures([played(*turns), played(turn([1], [2]))])
    assert found == {
        "cache/peak_mean": 4.0,
        "cache/peak_max": 7.0,
        "compaction/events": 1.5,
        "compaction/kept": pytest.approx(3 / 9),
        "compaction/region": 3.0,
        "compaction/residual": pytest.approx(0.2),
        "perf/event_ms": pytest.approx(2 / 3),
    }


def test_without_events_there_is_only_the_peak() -> None:
    assert cache_figures([played()]) == {"cache/peak_mean": 0.0, "cache/peak_max": 0.0, "compaction/events": 0.0}
