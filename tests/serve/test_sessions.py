"""Names, numbers and lifetimes of the sessions a server holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from served import app_over, asks, direct

from turnwise.errors import SessionGone
from turnwise.serve.once import Steps
from turnwise.serve.problem import Problem
from turnwise.serve.sessions import Sessions
from turnwise.testing import FakeEngine
from turnwise.types import Sampling

HOW = Sampling(max_tokens=3)
OPEN = {"session": "a", "prompt_ids": [5, 6], "sampling": {"max_tokens": 3}, "seed": 1}


def test_a_repeated_step_gets_the_first_answer_and_runs_once():
    runs: list[int] = []

    async def run() -> int:
        runs.append(len(runs))
        await asyncio.sleep(0.01)
        return runs[-1]

    async def work() -> list[int]:
        steps = Steps()
        together = await asyncio.gather(*(steps.once(0, "x", run) for _ in range(3)))
        return [*together, await steps.once(0, "x", run), await steps.once(1, "y", run)]

    assert asyncio.run(work()) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(("number", "asked"), [(0, "other"), (2, "x"), (7, "x")])
def test_a_step_out_of_turn_is_refused(number, asked):
    async def run() -> int:
        return 1

    async def work() -> None:
        steps = Steps()
        await steps.once(0, "x", run)
        await steps.once(number, asked, run)

    with pytest.raises(Problem, match=f"found step {number}; expected step 1"):
        asyncio.run(work())


def test_a_step_that_fails_or_is_given_up_does_not_count():
    async def fails() -> int:
        raise ValueError("no")

    async def hangs() -> int:
        await asyncio.sleep(60)
        return 0

    async def works() -> int:
        return 5

    async def work() -> tuple[int, int]:
        steps = Steps()
        with pytest.raises(ValueError, match="no"):
            await steps.once(0, "x", fails)
        waiting = asyncio.create_task(steps.once(0, "x", hangs))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return await steps.once(0, "z", works), steps.next

    assert asyncio.run(work()) == (5, 1)


def test_a_repeat_that_comes_while_the_first_is_being_cancelled_runs_again():
    async def slowly() -> int:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)
            raise
        return 5

    async def work() -> int:
        steps = Steps()
        first = asyncio.create_task(steps.once(0, "x", slowly))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0.005)
        return await steps.once(0, "x", slowly)

    assert asyncio.run(work()) == 5


def test_another_step_under_the_number_of_one_that_runs_takes_its_place():
    async def hangs() -> int:
        await asyncio.sleep(60)
        return 0

    async def works() -> int:
        return 5

    async def work() -> tuple[Any, int]:
        steps = Steps()
        first = asyncio.create_task(steps.once(0, "x", hangs))
        await asyncio.sleep(0.01)
        second = await steps.once(0, "y", works)
        return (await asyncio.gather(first, return_exceptions=True))[0], second

    first, second = asyncio.run(work())
    assert isinstance(first, Problem) and first.status == 499
    assert second == 5


def test_a_name_in_use_is_a_conflict_and_an_unknown_one_is_not_found():
    close = {"path": "/engine/close", "json": {"session": "a"}}
    opened = {"path": "/engine/open", "json": OPEN}
    said = asks(app_over(), opened, opened, close, close, opened)
    assert [s.status_code for s in said] == [200, 409, 200, 404, 200]


def test_with_too_many_sessions_the_next_is_told_when_to_come_back():
    opened = [{"path": "/engine/open", "json": {**OPEN, "session": name}} for name in "abc"]
    said = asks(app_over(max_sessions=2), *opened)
    assert [s.status_code for s in said] == [200, 200, 429]
    assert said[-1].headers["Retry-After"] == "1"


def test_a_session_for_whole_prompts_makes_room_since_it_comes_back_by_itself():
    body = {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 3, "seed": 1}}
    named = [{"path": "/inference/v1/generate", "json": body, "headers": {"X-Session-ID": n}} for n in "abca"]
    app = app_over(max_sessions=2)
    said = asks(app, *named)
    assert [s.status_code for s in said] == [200] * 4
    assert len({str(s.json()["choices"][0]["token_ids"]) for s in said}) == 1
    assert len(app.state.server.sessions) == 2


def test_a_session_nobody_uses_is_closed():
    async def work() -> tuple[int, int, int]:
        engine = FakeEngine([[1, 2]])
        sessions = Sessions(engine, 10, ttl_s=0.02)
        held = await sessions.make("busy", [5], HOW, 1, "")
        await sessions.make("idle", [5], HOW, 1, "")
        with sessions.use(held):
            await asyncio.sleep(0.05)
            closed = await sessions.sweep()
        return closed, len(sessions), engine.open_sessions

    assert asyncio.run(work()) == (1, 1, 1)


def test_requests_over_the_limit_at_once_are_told_to_come_back():
    async def work() -> list[int]:
        app = app_over(max_requests=2)
        async with direct(app) as http:
            body = {"token_ids": [5], "sampling_params": {"max_tokens": 200}}
            said = await asyncio.gather(*(http.post("/inference/v1/generate", json=body) for _ in range(4)))
            again = await http.post("/inference/v1/generate", json=body)
            return [*sorted(s.status_code for s in said), again.status_code]

    assert asyncio.run(work()) == [200, 200, 429, 429, 200]


def test_a_session_that_is_closed_while_it_is_opened_does_not_stay_in_the_engine():
    class Slow(FakeEngine):
        async def open(self, *args: Any, **more: Any) -> Any:
            await asyncio.sleep(0.01)
            return await super().open(*args, **more)

    async def work() -> tuple[int, int]:
        engine = Slow([])
        sessions = Sessions(engine, 4, 60.0)
        opening = asyncio.create_task(sessions.make("a", [5], HOW, 1, ""))
        await asyncio.sleep(0)
        await sessions.drop(sessions.get("a"))
        with pytest.raises(SessionGone, match="found session 'a' closed while it was opened"):
            await opening
        return len(sessions), engine.open_sessions

    assert asyncio.run(work()) == (0, 0)
