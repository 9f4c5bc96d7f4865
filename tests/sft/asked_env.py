"""An environment whose oracle knows the answer, with a tool to look it up; and an expert for it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

from turnwise.types import Observation, Task

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


class Asked:
    def __init__(self, size=20, broken=False):
        self.broken = broken

    @staticmethod
    def tasks(size=20, broken=False):
        return [Task(f"asked/{n}", {"n": n}) for n in range(size)]

    async def start(self, task):
        if self.broken:
            raise OSError("no machine")
        self.n = str(task.data["n"])
        hint = [{"role": "system", "content": f"It is {self.n}."}]
        return Observation([{"role": "user", "content": "Which number?"}], tools=[TOOL], oracle=hint)

    async def step(self, message):
        if message.get("tool_calls"):
            answer = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": self.n}
            return Observation([answer])
        return Observation(
            [{"role": "user", "content": "Thanks."}], reward=float(message["content"] == self.n), done=True
        )

    async def close(self): ...


class Silent(Asked):
    """Its oracle knows nothing."""

    async def start(self, task):
        seen = await super().start(task)
        seen.oracle = []
        return seen


class Unmoved(Asked):
    """Whatever is said, it asks again."""

    async def step(self, message):
        return Observation([{"role": "user", "content": "Which number?"}])


async def slow_expert(args, task):
    """The expert, which takes its time and writes down whom it has finished with."""
    await asyncio.sleep(0.05)
    with Path(os.environ["PLAYED"]).open("a") as file:
        file.write(f"{task.key}\n")
    return await expert(args, task)


async def expert(args, task):
    said = [{"role": "user", "content": "Which number?"}, {"role": "assistant", "content": str(task.data["n"])}]
    return SimpleNamespace(messages=said, success=task.data["n"] % 2 == 0, refusal=None)
