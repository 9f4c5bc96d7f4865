"""All episodes of a step: seeds, retries, what is closed, and that company changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from toy import Toy

from turnwise.agents import Batch, Limits, rollout
from turnwise.engine import LocalEngine
from turnwise.engine.local import LocalSession
from turnwise.envs.find import Environment
from turnwise.testing import FakeEngine, byte_tokenizer, tiny_model
from turnwise.text import ChatML
from turnwise.types import Completion, Engine, EpisodeStop, Observation, Sampling, Session, Task, Trajectory

CHATML = ChatML(byte_tokenizer())
END = CHATML.end
LIMITS = Limits(turns=3, tokens=400, timeout_s=30.0)
TASKS = [Task(f"toy/{n}", {"n": n}) for n in range(4)]
OPEN = Sampling(max_tokens=6, stop_ids=(END,))


class Dawdling(Toy):
    """Every call takes its own time, so that episodes interleave another way in each run."""

    async def _note(self, what: str, seconds: float) -> None:
        await super()._note(what, random.random() / 200)


class Flaky(Toy):
    """Breaks at the start of the first `times` episodes of all that share its diary."""

    def __init__(self, diary: list[str], times: int) -> None:
        super().__init__(diary)
        self.times = times

    async def start(self, task: Task) -> Observation:
        self.breaks = ["start"] if self.diary.count("start") < self.times else []
        return await super().start(task)


class Counting(LocalEngine):
    """Counts the sessions that are open."""

    open_sessions = 0

    async def open(self, prompt_ids: Sequence[int], sampling: Sampling, **more: Any) -> LocalSession:
        self.open_sessions += 1
        return await super().open(prompt_ids, sampling, **more)

    async def close(self, session: Session) -> None:
        self.open_sessions -= 1
        await super().close(session)


def play(batch: Batch, engine: Engine, make: Any = Toy, limits: Limits = LIMITS, **args: Any) -> list[Trajectory]:
    environment = Environment("toy", make, {"diary": [], **args})
    return asyncio.run(rollout(batch, environment, engine, CHATML, OPEN, limits))


def talk(*said: str) -> FakeEngine:
    return FakeEngine([[*CHATML.tokenizer.encode(text), END] for text in said])


def sampled(trajectories: Sequence[Trajectory]) -> list[list[list[int]]]:
    return [[turn.completion_ids.tolist() for turn in t.turns] for t in trajectories]


def test_trajectories_come_by_group_and_sibling_however_they_finish() -> None:
    found = play(Batch(TASKS, 3, seed=0, step=0), talk("a", "stop"), Dawdling)
    assert [(t.task.key, t.group, t.sibling) for t in found] == [(f"toy/{g}", g, s) for g in range(4) for s in range(3)]
    assert {(t.env, t.stop_reason) for t in found} == {("toy", EpisodeStop.DONE)}


def test_seeds_differ_between_siblings_tasks_steps_and_runs_and_are_the_same_for_the_same() -> None:
    def seeds(seed: int, step: int) -> list[int]:
        return [t.seed for t in play(Batch(TASKS, 3, seed, step), talk("stop"))]

    assert seeds(0, 0) == seeds(0, 0)
    assert len({*seeds(0, 0), *seeds(0, 1), *seeds(1, 0), *seeds(0, -1)}) == 4 * 12


def test_the_same_seed_gives_the_same_replies_whoever_is_first_and_siblings_differ() -> None:
    batch = Batch(TASKS, 2, seed=5, step=1)
    first = sampled(play(batch, LocalEngine(tiny_model()), Dawdling))
    assert first == sampled(play(batch, LocalEngine(tiny_model()), Dawdling))
    assert len({str(said) for said in first}) == 8
    assert first != sampled(play(Batch(TASKS, 2, seed=6, step=1), LocalEngine(tiny_model())))


def test_a_task_s_replies_do_not_depend_on_the_tasks_and_siblings_after_it() -> None:
    engine = LocalEngine(tiny_model())
    many = play(Batch(TASKS, 3, seed=5, step=1), engine)
    few = play(Batch(TASKS[:2], 2, seed=5, step=1), engine)
    shared = [t for t in many if t.group < 2 and t.sibling < 2]
    assert (sampled(few), [t.seed for t in few]) == (sampled(shared), [t.seed for t in shared])


def test_an_episode_that_failed_is_played_again_under_another_seed_as_often_as_told() -> None:
    def run(times: int, retries: int) -> tuple[EpisodeStop, Counter[str], int]:
        diary: list[str] = []
        (found,) = play(Batch(TASKS[:1], 1, 0, 0, retries), talk("stop"), Flaky, diary=diary, times=times)
        return found.stop_reason, Counter(diary), found.seed

    first, again = run(0, 1), run(1, 1)
    assert first[:2] == (EpisodeStop.DONE, Counter(start=1, step=1, close=1))
    assert again[:2] == (EpisodeStop.DONE, Counter(start=2, step=1, close=2))
    assert first[2] != again[2]
    assert run(2, 1)[:2] == (EpisodeStop.ENV_ERROR, Counter(start=2, close=2))
    assert run(1, 0)[:2] == (EpisodeStop.ENV_ERROR, Counter(start=1, close=1))


def test_a_timeout_is_tried_again_too_and_closes_its_environments() -> None:
    diary: list[str] = []
    slow = Limits(turns=3, tokens=400, timeout_s=0.02)
    (found,) = play(Batch(TASKS[:1], 1, 0, 0, retries=2), talk("stop"), limits=slow, diary=diary, waits=30.0)
    assert (found.stop_reason, Counter(diary)) == (EpisodeStop.TIMEOUT, Counter(start=3, close=3))


@pytest.mark.parametrize("limits", [Limits(1, 400, 30.0), Limits(3, 10, 30.0), LIMITS])
def test_an_episode_that_ran_into_a_limit_is_not_tried_again(limits: Limits) -> None:
    diary: list[str] = []
    play(Batch(TASKS[:1], 1, 0, 0, retries=2), talk("a", "b", "c"), limits=limits, diary=diary)
    assert (diary.count("start"), diary.count("close")) == (1, 1)


def test_what_an_engine_cannot_serve_is_tried_again_too() -> None:
    diary: list[str] = []
    (found,) = play(Batch(TASKS[:1], 1, 0, 0, retries=2), talk("a"), diary=diary)
    assert (found.stop_reason, Counter(diary)) == (EpisodeStop.ENGINE_ERROR, Counter(start=3, step=3, close=3))
    assert found.metrics["retries"] == 2.0


def test_a_failure_leaves_its_siblings_alone() -> None:
    found = play(Batch(TASKS, 2, 0, 0), talk("stop"), Flaky, times=3)
    assert Counter(t.stop_reason for t in found) == Counter({EpisodeStop.DONE: 5, EpisodeStop.ENV_ERROR: 3})


def test_progress_counts_every_episode_once() -> None:
    seen: list[tuple[int, int]] = []
    environment = Environment("toy", Flaky, {"diary": [], "times": 2})
    batch = Batch(TASKS, 2, 0, 0, retries=1)
    asyncio.run(
        rollout(batch, environment, talk("stop"), CHATML, OPEN, LIMITS, lambda done, total: seen.append((done, total)))
    )
    assert seen == [(n, 8) for n in range(1, 9)]


def test_cancelling_closes_every_environment_and_session() -> None:
    diary: list[str] = []
    engine = Counting(tiny_model())
    environment = Environment("toy", Toy, {"diary": diary})
    endless = Sampling(max_tokens=300, stop_ids=(1000,))

    async def run() -> None:
        task = asyncio.create_task(rollout(Batch(TASKS, 2, 0, 0), environment, engine, CHATML, endless, LIMITS))
        while engine.counts["forwards"] < 3:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert Counter(diary) == Counter(start=8, close=8)
        assert engine.open_sessions == 0

    asyncio.run(run())


class Buggy(FakeEngine):
    """Fails in a way that nobody meant."""

    async def step(self, session: Session, new_ids: Sequence[int], *given: Any, **named: Any) -> Completion:
        await asyncio.sleep(0.001)
        raise ZeroDivisionError("a bug")


def test_a_bug_rises_once_every_other_episode_has_closed() -> None:
    diary: list[str] = []
    engine = Buggy([])
    environment = Environment("toy", Dawdling, {"diary": diary})

    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            await rollout(Batch(TASKS, 2, 0, 0), environment, engine, CHATML, OPEN, LIMITS)
        assert diary.count("start") == diary.count("close") == 8
        assert engine.open_sessions == 0

    asyncio.run(run())
