"""What this environment keeps: run `pytest starter`."""

import asyncio
from itertools import islice
from pathlib import Path

from turnwise.envs import find
from turnwise.envs.find import Environment
from turnwise.types import Observation, Task

PLACE = Path(__file__).with_name("starter.py")


def environment(**args: int) -> Environment:
    """The environment as a config finds it."""
    return find(f"{PLACE}:Starter", args)


def play(task: Task, *replies: str) -> list[Observation]:
    """Everything the environment says in an episode of these replies."""

    async def episode() -> list[Observation]:
        env = environment().new()
        start = await env.start(task)
        seen = [await env.step({"role": "assistant", "content": reply}) for reply in replies]
        await env.close()
        return [start, *seen]

    return asyncio.run(episode())


def first() -> Task:
    return next(iter(environment().tasks()))


def test_tasks_come_in_a_fixed_order_under_unique_keys() -> None:
    once, again = (list(islice(environment(facts=3).tasks(), 50)) for _ in range(2))
    assert once == again
    assert len({task.key for task in once}) == 50


def test_the_right_answer_is_rewarded_and_ends_the_episode() -> None:
    asked, end = play(first(), first().data["answer"])
    assert asked.messages[-1]["content"].endswith("?")
    assert (end.reward, end.done, end.metrics["success"]) == (1.0, True, 1.0)


def test_a_second_try_counts_half() -> None:
    *_, again, end = play(first(), "nowhere", first().data["answer"])
    assert (again.reward, again.done) == (0.0, False)
    assert (end.reward, end.done) == (0.5, True)


def test_two_wrong_answers_earn_nothing() -> None:
    *_, end = play(first(), "nowhere", "nowhere")
    assert (end.reward, end.done, end.metrics["success"]) == (0.0, True, 0.0)
