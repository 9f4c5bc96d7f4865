"""Programming tasks answered through tool calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from turnwise.envs import TaskSet, find
from turnwise.envs.forth import Forth
from turnwise.envs.forth.env import TOOLS
from turnwise.envs.forth.tasks import solve
from turnwise.errors import ConfigError
from turnwise.types import Message, Observation, Task

SUM = Task("t", {"tier": 0, "goal": "the sum of a and b", "program": "+", "inputs": [[2, 3], [4, 0], [-1, 1]]})


def called(name: str, arguments: Any, id: str = "c1") -> Message:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def play(replies: Sequence[Message], task: Task = SUM, **args: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        env = Forth(**args)
        seen = [await env.start(task)]
        for reply in replies:
            seen += [await env.step(reply)]
        await env.close()
        return seen

    return asyncio.run(run())


def test_an_episode_starts_with_the_goal_an_example_and_the_tools() -> None:
    (first,) = play([])
    said = "a and b lie on the stack, b on top. Leave the sum of a and b.\nExample: 2 3 becomes 5"
    assert first.messages[1] == {"role": "user", "content": said} and first.tools == TOOLS


def test_code_is_run_on_the_example_and_answered_as_the_tool() -> None:
    seen = play([called("run_code", {"code": "swap ."}), called("run_code", '{"code": "drop drop +"}', "c2")])
    assert seen[1].messages == [
        {"role": "tool", "tool_call_id": "c1", "name": "run_code", "content": "output: 2 \nstack: 3"}
    ]
    assert seen[2].messages[0]["content"] == "error: stack underflow\nstack: empty"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("swap", "swap ( a b -- b a ) exchanges the top two"),
        (" SWAP", "swap ( a b -- b a ) exchanges the top two"),
        ("swop", "no word swop; there are swap 2swap"),
    ],
)
def test_words_are_looked_up(word: str, said: str) -> None:
    assert play([called("lookup_docs", {"word": word})])[1].messages[0]["content"].startswith(said)


def test_a_submission_ends_the_episode_and_is_judged_on_inputs_that_were_not_shown() -> None:
    right, wrong = (
        play([called("submit_code", {"code": "+"})])[-1],
        play([called("submit_code", {"code": "drop 3 +"})])[-1],
    )
    assert (right.reward, right.done, right.metrics["success"]) == (1.0, True, 1.0)
    assert (wrong.reward, wrong.done, wrong.metrics["inputs_right"]) == (0.0, True, 1 / 3)
    assert play([called("submit_code", {"code": "drop 3 +"})], partial=0.3)[-1].reward == pytest.approx(0.1)


def test_several_calls_are_answered_in_order_and_what_follows_a_submission_is_not() -> None:
    calls = [called(name, {"code": "+"})["tool_calls"][0] for name in ("run_code", "submit_code", "run_code")]
    seen = play([{"role": "assistant", "content": "", "tool_calls": calls}])[-1]
    assert [m["name"] for m in seen.messages] == ["run_code", "submit_code"] and seen.reward == 1.0


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"role": "assistant", "content": "+"}, "Call a tool: run_code, lookup_docs or submit_code."),
        (called("fly", {}), "no tool fly; there are run_code, submit_code, lookup_docs"),
        (called("run_code", "{"), "run_code takes one text, 'code'"),
        (called("run_code", {"code": 3}), "run_code takes one text, 'code'"),
        (called("run_code", "[1]"), "run_code takes one text, 'code'"),
        (
            {
                "role": "assistant",
                "content": "",
                "failed_calls": [{"status": "invalid_json", "raw": "{", "name": None}],
            },
            "This tool call can not be read: invalid_json. Call a tool: run_code, lookup_docs or submit_code.",
        ),
    ],
)
def test_what_is_no_call_of_a_tool_is_told_so_and_counted(reply: Message, said: str) -> None:
    seen = play([reply], max_calls=1)[-1]
    assert seen.messages[0]["content"] == said
    assert (seen.done, seen.reward, seen.metrics["invalid"]) == (True, 0.0, 1.0)


def test_every_task_s_own_program_does_not_fail_and_is_handed_in_rightly() -> None:
    for task in islice(Forth.tasks(tiers=[0, 1, 2, 3]), 200):
        assert all(solve(task.data["program"], given).error is None for given in task.data["inputs"])
        assert play([called("submit_code", {"code": task.data["program"]})], task)[-1].reward == 1.0
        assert json.loads(json.dumps(dict(task.data))) == task.data


@pytest.mark.parametrize("tiers", [[0, 1], [0, 1, 2], [2, 3], [0, 1, 2, 3]])
def test_words_that_are_held_out_stand_in_no_program_of_training(tiers: list[int]) -> None:
    tasks = TaskSet(find("forth", {"tiers": tiers}), 0.5, 0)
    trained = {word for task in islice(tasks.train(), 2000) for word in task.data["program"].split()}
    held = {task.split.removeprefix("forth/") for task in tasks.holdout(500) if task.split}
    assert held and trained and not held & trained


def test_only_the_words_that_are_asked_for_are_needed() -> None:
    found = islice(Forth.tasks(tiers=[0], words=["+", "abs"]), 50)
    assert {task.data["program"] for task in found} == {"+", "abs"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"tiers": [7]}, "found tiers [7]; expected some of [0, 1, 2, 3]"),
        ({"tiers": []}, "found tiers []"),
        ({"words": ["@"]}, "found words ['@']; expected some of"),
        ({"words": ["+"]}, "expected at least two that turn two numbers into one"),
        ({"split": "hash"}, "found split 'hash'; expected 'word' or 'task'"),
        ({"max_calls": 0}, "found max_calls 0"),
        ({"partial": 2.0}, "partial 2.0"),
    ],
)
def test_arguments_out_of_range_are_refused(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Forth(**find("forth", args).args)
    assert words in str(caught.value)
