"""BabyAI levels played through text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from turnwise.envs import find
from turnwise.envs.babyai import Babyai
from turnwise.envs.babyai.env import ACTIONS, parse
from turnwise.envs.babyai.level import levels
from turnwise.errors import ConfigError
from turnwise.types import Observation, Task

RULES = (
    "You walk through a grid world to fulfil the goal given first. Reply with one action only: turn left, turn right, "
    "go forward, pick up, drop, toggle. The last three act one step ahead; toggle opens doors and boxes."
)
VALID = "Invalid reply. Valid: turn left, turn right, go forward, pick up, drop, toggle."
WON = ["turn right", "turn right", "go forward", "go forward", "turn right", "go forward"]
"""How seed 1 of the default level is won."""


def play(replies: Sequence[str], seed: int = 1, **args: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        env = Babyai(**args)
        seen = [await env.start(Task("task", {"seed": seed}))]
        for reply in replies:
            if seen[-1].done:
                break
            seen += [await env.step({"role": "assistant", "content": reply})]
        await env.close()
        return seen

    return asyncio.run(run())


def texts(seen: list[Observation]) -> list[str]:
    return [one.messages[-1]["content"] for one in seen]


def test_an_episode_starts_with_the_rules_and_the_mission_and_then_only_shows_the_view() -> None:
    first, second = play(["turn right"])
    assert first.messages == [
        {"role": "system", "content": RULES},
        {"role": "user", "content": "Goal: go to the red ball\na wall 3 steps left\na wall 4 steps forward"},
    ]
    assert second.messages == [{"role": "user", "content": "a wall 3 steps right\na wall 4 steps forward"}]
    assert len(RULES.split()) < 40


def test_success_is_rewarded_with_one_and_ends_the_episode() -> None:
    *before, last = play(WON)
    assert [(seen.reward, seen.done, seen.metrics) for seen in before] == [(0.0, False, {})] * 6
    assert (last.reward, last.done) == (1.0, True)
    assert last.metrics == {"success": 1.0, "steps": 6.0, "invalid": 0.0}


def test_time_costs_its_share_of_the_reward() -> None:
    assert play(WON, time_cost=0.5)[-1].reward == 1 - 0.5 * 6 / 64
    assert play(WON, time_cost=0.5, max_steps=6)[-1].reward == 0.5
    assert play(WON, time_cost=1.0, max_steps=500)[-1].reward == 1 - 6 / 500


def test_the_step_limit_ends_an_episode_without_reward() -> None:
    own = play(["turn left"] * 64)
    assert [seen.done for seen in own] == [False] * 64 + [True]
    given = play(["turn left"] * 3, max_steps=3)[-1]
    assert (given.reward, given.metrics) == (0.0, {"success": 0.0, "steps": 3.0, "invalid": 0.0})


def test_an_invalid_reply_is_answered_costs_a_step_and_changes_nothing() -> None:
    first, second = play(["jump"], max_steps=1)
    assert second.messages[0]["content"] == f"{VALID}\na wall 3 steps left\na wall 4 steps forward"
    assert first.messages[1]["content"].endswith("a wall 3 steps left\na wall 4 steps forward")
    assert second.metrics == {"success": 0.0, "steps": 1.0, "invalid": 1.0}


def test_an_invalid_reply_can_be_replaced_and_is_still_counted() -> None:
    replaced = play(["jump", *WON[1:]], on_invalid="turn right")
    assert texts(replaced) == texts(play(WON))
    assert replaced[-1].metrics == {"success": 1.0, "steps": 6.0, "invalid": 1.0}


@pytest.mark.parametrize(
    ("replies", "line"),
    [
        (["go forward"] * 4, "You can not go forward."),
        (["pick up"], "You can not pick up."),
        (["drop"], "You can not drop."),
        (["toggle"], "You can not toggle."),
    ],
)
def test_an_action_without_effect_is_told(replies: list[str], line: str) -> None:
    *others, last = texts(play(replies))
    assert last.splitlines()[0] == line
    assert not any(line in other for other in others)


def test_carrying_and_toggling_are_seen_and_not_called_without_effect() -> None:
    replies = ["turn left"] * 3 + ["pick up", "go forward", "turn right", "go forward", "turn left", "toggle"]
    seen = texts(play(replies, seed=0, level="BabyAI-UnlockPickup-v0"))
    assert seen[4].splitlines()[0] == "you carry a green key"
    assert seen[8].splitlines()[1] == "a locked green door 1 step forward"
    assert seen[9].splitlines()[1] == "an open green door 1 step forward"


@pytest.mark.parametrize("reply", ["go forward", " Go Forward.\n", "GO FORWARD", "go forward ."])
def test_case_blanks_and_a_full_stop_do_not_matter(reply: str) -> None:
    assert parse({"role": "assistant", "content": reply}, ACTIONS) == "go forward"


def test_content_may_be_parts_or_missing() -> None:
    parts = [{"type": "text", "text": "pick "}, {"type": "text", "text": "up"}]
    assert parse({"role": "assistant", "content": parts}, ACTIONS) == "pick up"
    assert parse({"role": "assistant", "content": None}, ACTIONS) is None
    assert parse({"role": "assistant", "content": "go"}, ACTIONS) is None


def test_every_level_starts_renders_and_takes_steps(capfd: pytest.CaptureFixture[str]) -> None:
    ready = [level for level in levels() if not level.startswith("MiniGrid-WFC-")]  # those need a package more
    assert len(ready) > 150
    for level in ready:
        seen = play(["turn left", "go forward", "turn right"], level=level)
        assert len(seen) == 4 or seen[-1].done
        assert all(texts(seen))
    assert capfd.readouterr() == ("", "")


def test_the_same_seed_is_the_same_text_and_another_another() -> None:
    replies = ["turn left", "go forward", "toggle"] * 5
    level = "BabyAI-BossLevel-v0"
    assert texts(play(replies, 3, level=level)) == texts(play(replies, 3, level=level))
    assert texts(play(replies, 3, level=level)) != texts(play(replies, 4, level=level))


def test_a_level_with_fewer_actions_offers_only_those() -> None:
    first, second = play(["toggle"], level="MiniGrid-Dynamic-Obstacles-5x5-v0")
    assert first.messages[0]["content"].endswith("Reply with one action only: turn left, turn right, go forward.")
    assert second.messages[0]["content"].startswith("Invalid reply. Valid: turn left, turn right, go forward.\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"level": "BabyAI-GoToRedBal-v0"}, "nearest: ['BabyAI-GoToRedBall-v0'"),
        ({"level": "MiniGrid-GoToDoor-5x5-v0"}, "expected one that the six actions can win"),
        ({"max_steps": 0}, "expected at least 1"),
        ({"time_cost": 1.5}, "expected a share of the reward in [0, 1]"),
        ({"on_invalid": "go foward"}, "did you mean 'go forward'?"),
        ({"level": "MiniGrid-Dynamic-Obstacles-5x5-v0", "on_invalid": "drop"}, "expected one of ['turn left', "),
    ],
)
def test_arguments_out_of_range_are_refused(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        play([], **find("babyai", args).args)
    assert words in str(caught.value)


def test_the_tasks_of_an_unknown_level_are_refused_before_the_first_is_drawn() -> None:
    with pytest.raises(ConfigError, match="nearest"):
        find("babyai", {"level": "BabyAI-Nope-v0"}).tasks()
