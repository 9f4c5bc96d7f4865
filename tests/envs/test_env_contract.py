"""What every environment keeps, whoever wrote it."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path

import pytest

from turnwise.envs import find
from turnwise.envs.find import BUILT_IN, Environment
from turnwise.errors import DataError
from turnwise.types import Env, Message, Observation, Task

ROOT = Path(__file__).parents[2]
REPLY: Message = {"role": "assistant", "content": "turn left"}
MEMBERS = [
    find("babyai", {}),
    find("babyai", {"level": "BabyAI-BossLevel-v0", "max_steps": 30, "time_cost": 0.5}),
    find("babyai", {"level": "MiniGrid-MemoryS7-v0", "on_invalid": "toggle"}),
    find("forth", {}),
    find("forth", {"tiers": [2, 3], "split": "task", "max_calls": 2}),
    find("recall", {}),
    find("recall", {"lengths": [2, 9], "distractors": 3, "cues": 3, "time_cost": 0.5, "max_steps": 20}),
    find("math", {"path": f"{ROOT / 'examples/math.jsonl'}"}),
    find("passages", {}),
    find("passages", {"mode": "words", "passages": 4, "rivals": 2, "hops": 1}),
    find("passages", {"mode": "all", "hops": 4, "split": "task"}),
    find("reasoning_gym", {"datasets": "leg_counting", "tries": 2}),
    find("reasoning_gym", {"datasets": [{"name": "gcd", "weight": 2}, {"name": "chain_sum"}], "system": ""}),
    find(f"{Path(__file__).with_name('toy_env.py')}:Toy", {"size": 7}),
]
VERIFIERS = [
    find("verifiers", {"taskset": "number_guess"}),
    find("verifiers", {"taskset": {"id": "number_guess", "size": 4}, "settings": {"guesses": 2}, "success_at": 0.5}),
]
every_member = pytest.mark.parametrize(
    "environment",
    [*MEMBERS, *(pytest.param(e, marks=pytest.mark.peer("verifiers")) for e in VERIFIERS)],
    ids=lambda e: f"{e.id.split('/')[-1]}-{len(e.args)}",
)


def test_every_built_in_environment_is_a_member() -> None:
    assert {e.id for e in [*MEMBERS, *VERIFIERS]} >= set(BUILT_IN)


@pytest.fixture(autouse=True)
def _packages(installed_environments: None) -> None:
    """The packages that VERIFIERS name."""


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
