"""What every environment keeps, whoever wrote it."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path

import pytest

from turnwise.envs import find
from turnwise.envs.find import Environment
from turnwise.errors import DataError
from turnwise.types import Env, Message, Observation, Task

REPLY: Message = {"role": "assistant", "content": "turn left"}
MEMBERS = [
    find("babyai", {}),
    find("babyai", {"level": "BabyAI-BossLevel-v0", "max_steps": 30, "time_cost": 0.5}),
    find("babyai", {"level": "MiniGrid-MemoryS7-v0", "on_invalid": "toggle"}),
    find("recall", {}),
    find("recall", {"lengths": [2, 9], "distractors": 3, "cues": 3, "time_cost": 0.5, "max_steps": 20}),
    find(f"{Path(__file__).with_name('toy_env.py')}:Toy", {"size": 7}),
]
every_member = pytest.mark.parametrize("environment", MEMBERS, ids=lambda e: f"{e.id.split('/')[-1]}-{len(e.args)}")


def first_task(environment: Environment) -> Task:
    return next(iter(environment.tasks()))


async def play(env: Env, task: Task) -> list[Observation]:
    seen = [await env.start(task)]
    while not seen[-1].done and len(seen) < 1000:
        seen.append(await env.step(REPLY))
    await env.close()
    return seen


@every_member
def test_tasks_come_in_a_fixed_order_with_unique_keys(environment: Environment) -> None:
    once, twice = (list(islice(environment.tasks(), 20)) for _ in range(2))
    assert once == twice
    assert len({task.key for task in once}) == len(once) > 0


@every_member
def test_the_same_task_and_replies_give_the_same_episode(environment: Environment) -> None:
    once, twice = (asyncio.run(play(environment.new(), first_task(environment))) for _ in range(2))
    assert once == twice


@every_member
def test_an_episode_ends_and_is_rewarded_and_measured(environment: Environment) -> None:
    first, *rest = asyncio.run(play(environment.new(), first_task(environment)))
    assert first.messages[-1]["role"] == "user"
    assert not first.done
    assert [seen.done for seen in rest] == [False] * (len(rest) - 1) + [True]
    assert rest[-1].metrics["success"] in {0.0, 1.0}


@every_member
def test_what_an_environment_says_is_plain_json(environment: Environment) -> None:
    for seen in asyncio.run(play(environment.new(), first_task(environment))):
        assert json.loads(json.dumps(seen.messages)) == seen.messages
        assert {m["role"] for m in seen.messages} <= {"system", "user", "tool"}
        assert [type(x) for x in (seen.reward, seen.done)] == [float, bool]
        assert {type(value) for value in seen.metrics.values()} <= {float}


@every_member
def test_an_environment_serves_one_episode_only(environment: Environment) -> None:
    env, task = environment.new(), first_task(environment)
    with pytest.raises(DataError):
        asyncio.run(env.step(REPLY))
    asyncio.run(play(env, task))
    with pytest.raises(DataError):
        asyncio.run(env.step(REPLY))
    with pytest.raises(DataError):
        asyncio.run(env.start(task))


@every_member
def test_closing_is_always_allowed(environment: Environment) -> None:
    env = environment.new()
    asyncio.run(env.close())
    asyncio.run(env.close())


@every_member
def test_episodes_side_by_side_do_not_meet(environment: Environment) -> None:
    tasks = list(islice(environment.tasks(), 4))

    async def together() -> list[list[Observation]]:
        return await asyncio.gather(*(play(environment.new(), task) for task in tasks))

    assert asyncio.run(together()) == [asyncio.run(play(environment.new(), task)) for task in tasks]
