"""Episodes for the turn loop's benchmark: a tool that answers with words, and an engine that calls it at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

from turnwise.agents import Batch, Limits, Rules, rollout
from turnwise.envs.find import Environment
from turnwise.model import tiny
from turnwise.testing import FakeEngine
from turnwise.text import ChatML
from turnwise.types import Message, Observation, Sampling, Task, Tool

TOOL: Tool = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Says what is there.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}
CALL = 'I will look there next.\n<tool_call>\n{"name": "look", "arguments": {"at": "the old bridge"}}\n</tool_call>'
WORDS = ("the", "old", "new", "bridge", "river", "town", "house", "door", "key", "red", "green", "near", "far", "two")


class Talk:
    """Answers every call with the same words until all turns are played."""

    def __init__(self, turns: int, answer: str) -> None:
        self.left = turns
        self.answer = answer

    @staticmethod
    def tasks(**_: Any) -> Iterable[Task]:
        return [Task("talk")]

    async def start(self, task: Task) -> Observation:  # noqa: ARG002 - all are alike
        return Observation([{"role": "user", "content": self.answer}], tools=[TOOL])

    async def step(self, message: Message) -> Observation:
        self.left -= 1
        answers: list[Message] = [
            {"role": "tool", "tool_call_id": call["id"], "name": "look", "content": self.answer}
            for call in message["tool_calls"]
        ]
        return Observation(answers, done=not self.left)

    async def close(self) -> None: ...


class Instant(FakeEngine):
    """Answers at once, but lets every other episode go on first, as an engine does."""

    async def step(self, *given: Any, **named: Any) -> Any:
        await asyncio.sleep(0)
        self.read.clear()
        return await super().step(*given, **named)


def batch(turns: int, words: int) -> Callable[[int], int]:
    """What plays so many episodes side by side; it returns the tokens that the last one held."""
    draw = random.Random(0)
    answer = " ".join(draw.choices(WORDS, k=words))
    tokenizer: Any = tiny.train_tokenizer([answer, CALL] * 8, vocab=600)
    renderer = ChatML(tokenizer)
    reply = [*tokenizer.encode(CALL, add_special_tokens=False), renderer.end]
    environment = Environment("talk", Talk, {"turns": turns, "answer": answer})
    sampling, limits = Sampling(stop_ids=(renderer.end,)), Limits(turns, 1_000_000, 3600.0)

    async def play(concurrent: int) -> int:
        tasks, engine = [Task(f"talk/{n}") for n in range(concurrent)], Instant([reply] * turns)
        rules = Rules("answer")
        played = await rollout(Batch(tasks, 1, 0, 0), environment, engine, renderer, sampling, limits, rules=rules)
        assert all(t.error is None for t in played), played[-1].error
        return len(played[-1].turns[-1].ids)

    # What asyncio.run returns it also writes out once, into an error that it catches: a number, not all trajectories.
    return lambda concurrent: asyncio.run(play(concurrent))
