"""Hallways whose end is left by the side that was told at their beginning."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from turnwise.envs import find
from turnwise.envs.recall import Recall
from turnwise.envs.recall.env import SYSTEM
from turnwise.errors import ConfigError
from turnwise.types import Observation


def play(replies: Sequence[str], seed: int = 3, **args: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        env = Recall(**args)
        task = next(islice(Recall.tasks(**args), seed, None))
        seen = [await env.start(task)]
        for reply in replies:
            if seen[-1].done:
                break
            seen += [await env.step({"role": "assistant", "content": reply})]
        await env.close()
        return seen

    return asyncio.run(run())


def texts(seen: list[Observation]) -> list[str]:
    return [one.messages[-1]["content"] for one in seen]


def walk(side: str, steps: int = 3) -> list[str]:
    return ["go forward"] * steps + [f"turn {side}", "go forward"]


def test_only_the_first_observation_says_where_to_turn() -> None:
    seen = play(walk("right"))
    assert seen[0].messages == [
        {"role": "system", "content": SYSTEM},
        {
            "role": "user",
            "content": "At the end of the hallway turn right.\n"
            "a wall 1 step left\na wall 1 step right\na wall 4 steps forward",
        },
    ]
    assert texts(seen)[3] == "a wall 1 step forward\na wall 2 steps left\na wall 2 steps right"
    assert not any("turn" in text for text in texts(seen)[1:])


def test_the_told_side_is_rewarded_and_the_other_ends_the_walk_with_nothing() -> None:
    right, wrong = play(walk("right"), time_cost=0.5)[-1], play(walk("left"))[-1]
    assert (right.reward, right.done) == (1 - 0.5 * 5 / 14, True)
    assert right.metrics == {
        "success": 1.0,
        "success_length_3": 1.0,
        "reached_end": 1.0,
        "steps": 5.0,
        "invalid": 0.0,
    }
    assert (wrong.reward, wrong.done, wrong.metrics["success"], wrong.metrics["reached_end"]) == (0.0, True, 0.0, 1.0)


def test_the_step_limit_ends_a_walk_that_stays_in_the_hallway() -> None:
    last = play(["turn left"] * 30, max_steps=9)[-1]
    assert (last.done, last.reward, last.metrics["steps"], last.metrics["reached_end"]) == (True, 0.0, 9.0, 0.0)


def test_what_has_no_effect_is_told_and_costs_a_step() -> None:
    seen = texts(play(["jump", "turn left", "go forward"]))
    assert seen[1].startswith("Invalid reply. Valid: turn left, turn right, go forward.\na wall")
    assert seen[3].startswith("You can not go forward.\na wall")
    assert play(["jump"] * 30, max_steps=7)[-1].metrics["invalid"] == 7.0


def test_lengths_and_sides_are_drawn_evenly() -> None:
    found = Counter((last(0, n).split("_")[-1], last(1, n)) for n in range(200))
    assert {length for length, _ in found} == {"2", "3", "4"}
    assert all(20 <= times <= 47 for times in found.values()) and len(found) == 6


def last(what: int, seed: int) -> str:
    """The length of a hallway, or the side its end is left by."""
    first, *_, end = play(["turn left"] * 6, seed, lengths=[2, 4], max_steps=6)
    length = next(name for name in end.metrics if name.startswith("success_length"))
    return [length, first.messages[1]["content"].splitlines()[0]][what]


def test_several_ends_are_told_apart_only_when_one_is_reached() -> None:
    seen = texts(play(["go forward"] * 3, cues=3))
    assert seen[0].splitlines()[:3] == [
        "At a red end turn left.",
        "At a yellow end turn right.",
        "At a grey end turn right.",
    ]
    assert [text.count("This is a grey end.") for text in seen] == [0, 0, 0, 1]
    assert play(walk("right"), cues=3)[-1].reward == 1.0
    assert play(walk("left"), cues=3)[-1].reward == 0.0


def test_distractors_stand_beside_the_hallway_and_change_nothing_else() -> None:
    seen = texts(play(walk("right"), distractors=2))
    assert seen[0].splitlines()[1:3] == [
        "a red box 1 step forward and 1 step left",
        "a grey ball 1 step forward and 1 step right",
    ]
    assert play(walk("right"), distractors=99)[-1].reward == 1.0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"lengths": [0, 3]}, "found lengths [0, 3]; expected the shortest and the longest hallway"),
        ({"lengths": [3]}, "such as [1, 5]"),
        ({"lengths": [5, 1]}, "found lengths [5, 1]"),
        ({"distractors": -1}, "expected 0 or more"),
        ({"cues": 0}, "expected 1 to 6"),
        ({"max_steps": 6}, "expected at least 7"),
        ({"time_cost": 2.0}, "expected a share of the reward in [0, 1]"),
    ],
)
def test_arguments_out_of_range_are_refused(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Recall(**find("recall", args).args)
    assert words in str(caught.value)
