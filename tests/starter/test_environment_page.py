"""docs/environment-of-your-own.md shows environments that run as they stand."""

from __future__ import annotations

import asyncio
import re
from itertools import islice
from pathlib import Path

import pytest

from turnwise.envs import TaskSet, find

PAGE = (Path(__file__).parents[2] / "docs" / "environment-of-your-own.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CALL = {"id": "c1", "type": "function", "function": {"name": "open_box", "arguments": "{oops"}}


def environment(block, tmp_path):
    path = tmp_path / f"boxes_{BLOCKS.index(block)}.py"
    path.write_text(block)
    return find(f"{path}:Boxes", {})


def reply(text):
    """The right answer, as text or as a call."""
    call = {**CALL, "function": {"name": "open_box", "arguments": f'{{"colour": "{text}"}}'}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


async def play(env, task, message):
    seen = [await env.start(task), await env.step(message)]
    await env.close()
    await env.close()
    return seen


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_environment_rewards_the_right_answer(number, tmp_path):
    boxes = environment(BLOCKS[number], tmp_path)
    for task in islice(TaskSet(boxes, 0.2, 0).train(), 5):
        start, end = asyncio.run(play(boxes.new(), task, reply(task.data["answer"])))
        assert start.messages[0]["role"] == "user"
        assert (end.reward, end.done) == (1.0, True)


def test_the_steps_show_what_they_say(tmp_path):
    assert len(BLOCKS) == 5
    tries, split, tools, oracle = (environment(block, tmp_path) for block in BLOCKS[1:])
    task = next(iter(tries.tasks()))
    _, again = asyncio.run(play(tries.new(), task, {"role": "assistant", "content": "nowhere"}))
    assert (again.messages[0]["content"], again.done) == ("No. Try again.", False)
    trained = {t.split for t in islice(TaskSet(split, 0.2, 0).train(), 500)}
    assert not trained & {t.split for t in TaskSet(split, 0.2, 0).holdout(100)}
    start, told = asyncio.run(play(tools.new(), task, {"role": "assistant", "content": "", "tool_calls": [CALL]}))
    assert start.tools[0]["function"]["name"] == "open_box"
    assert told.messages == [
        {"role": "tool", "tool_call_id": "c1", "name": "open_box", "content": "open_box takes one text, 'colour'"}
    ]
    start, _ = asyncio.run(play(oracle.new(), task, reply("red")))
    assert start.oracle[0]["content"] == f"It is in the {task.data['answer']} box."
