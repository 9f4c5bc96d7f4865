"""A talkative environment for tests of episodes: it answers every reply, keeps a diary, and breaks where it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from turnwise.types import Message, Observation, Task


class Toy:
    """Ends when it is told "stop". `diary` is shared by all episodes: start, step and close, in order.

    `breaks` says where it raises: "start", "step", or "close"; `waits` how many seconds start takes.
    """

    def __init__(self, diary: list[str], breaks: Sequence[str] = (), waits: float = 0.0) -> None:
        self.diary = diary
        self.breaks = breaks
        self.waits = waits
        self.turn = 0

    @staticmethod
    def tasks(**_: Any) -> Iterable[Task]:
        return [Task(f"toy/{n}", {"n": n}) for n in range(20)]

    async def start(self, task: Task) -> Observation:
        await self._note("start", self.waits)
        return Observation([{"role": "user", "content": f"task {task.data.get('n', 0)}"}])

    async def step(self, message: Message) -> Observation:
        await self._note("step", 0.0)
        self.turn += 1
        said = message["content"]
        metrics = {"turn": float(self.turn), f"turn_{self.turn}": 1.0}
        more: list[Message] = [{"role": "user", "content": f"you said {said}"}]
        return Observation(more, reward=0.5 * self.turn, done=said == "stop", metrics=metrics)

    async def close(self) -> None:
        await self._note("close", 0.0)

    async def _note(self, what: str, seconds: float) -> None:
        self.diary.append(what)
        await asyncio.sleep(seconds)
        if what in self.breaks:
            raise ValueError(f"no {what} today")
