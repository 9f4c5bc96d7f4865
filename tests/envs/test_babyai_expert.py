"""MiniGrid's planner as a source of demonstrations."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

from turnwise.envs import find
from turnwise.envs.babyai.env import ACTIONS
from turnwise.envs.babyai.expert import Demonstration, demonstrate
from turnwise.errors import ConfigError
from turnwise.types import Task


def demonstrations(level: str, n: int, **others: Any) -> list[Demonstration]:
    args = {"level": level, **others}

    async def run() -> list[Demonstration]:
        return [await demonstrate(args, task) for task in islice(find("babyai", args).tasks(), n)]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("level", "n"),
    [
        ("BabyAI-GoToRedBallNoDists-v0", 50),
        ("BabyAI-GoToLocal-v0", 20),
        ("BabyAI-PickupLoc-v0", 20),
        ("BabyAI-PutNextLocal-v0", 20),
        ("BabyAI-UnlockLocal-v0", 20),
        ("BabyAI-UnlockPickup-v0", 20),
    ],
)
def test_the_planner_solves_nearly_every_task(level: str, n: int) -> None:
    assert sum(one.success for one in demonstrations(level, n)) >= 0.95 * n


def test_a_demonstration_is_a_conversation_of_valid_actions() -> None:
    (one,) = demonstrations("BabyAI-GoToRedBallNoDists-v0", 1)
    roles = [message["role"] for message in one.messages]
    turns = roles.count("assistant")
    assert roles == ["system", "user", *["assistant", "user"] * turns]
    assert {message["content"] for message in one.messages if message["role"] == "assistant"} <= set(ACTIONS)
    assert one == Demonstration(one.task, one.messages, True, None)


def test_a_refusal_is_part_of_the_result() -> None:
    (one,) = demonstrations("BabyAI-KeyInBox-v0", 1)
    assert (one.success, one.refusal) == (False, "AssertionError: ")
    (lost,) = demonstrations("BabyAI-PutNextS5N2Carrying-v0", 1)
    assert (lost.success, lost.refusal) == (False, "AssertionError: 0nothing left to explore")


def test_a_search_without_end_is_a_refusal() -> None:
    refusals = {one.refusal for one in demonstrations("BabyAI-UnlockToUnlock-v0", 12)}
    assert refusals == {None, "RecursionError: no action after 100 searches"}


def test_an_episode_cut_by_the_step_limit_is_no_success() -> None:
    (one,) = demonstrations("BabyAI-PutNextLocal-v0", 1, max_steps=2)
    assert (one.success, one.refusal) == (False, None)
    assert len(one.messages) == 6


def test_a_level_the_planner_can_not_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a BabyAI level"):
        asyncio.run(demonstrate({"level": "MiniGrid-Empty-5x5-v0"}, Task("task", {"seed": 0})))
