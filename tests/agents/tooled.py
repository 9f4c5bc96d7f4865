"""An environment with tools for tests of episodes: it echoes what it is given and breaks where it is told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from turnwise.errors import ToolError
from turnwise.types import Message, Observation, Task, Tool


def tool(name: str, **properties: str) -> Tool:
    schema = {"type": "object", "properties": {n: {"type": kind} for n, kind in properties.items()}}
    return {"type": "function", "function": {"name": name, "parameters": {**schema, "required": [*properties]}}}


class Tooled:
    """`echo` says what it is told, `shout` raises ToolError, `boom` a ValueError, `end` ends the episode.

    `seen` is what steps were given.
    `first` is the first user message; `pad` is put behind every echo.
    """

    def __init__(self, seen: list[Message], first: str = "go", pad: str = "", done_without: bool = False) -> None:
        self.seen = seen
        self.first = first
        self.pad = pad
        self.done_without = done_without

    @staticmethod
    def tasks(**_: Any) -> Iterable[Task]:
        return [Task(f"tooled/{n}") for n in range(20)]

    async def start(self, task: Task) -> Observation:
        tools = [tool("echo", text="string"), tool("shout"), tool("boom"), tool("end")]
        return Observation([{"role": "user", "content": self.first}], tools=tools, extra={"kind": "tooled"})

    async def step(self, message: Message) -> Observation:
        self.seen.append(message)
        calls = message.get("tool_calls") or []
        names = [call["function"]["name"] for call in calls]
        if "shout" in names:
            raise ToolError("do not shout")
        if "boom" in names:
            raise ValueError("boom")
        said = [(call["id"], json.loads(call["function"]["arguments"]).get("text", "")) for call in calls]
        answers: list[Message] = [{"role": "tool", "tool_call_id": i, "content": f"{t}{self.pad}"} for i, t in said]
        done = "end" in names or (self.done_without and not calls)
        return Observation(answers or [{"role": "user", "content": "call a tool"}], reward=float(done), done=done)

    async def close(self) -> None: ...
