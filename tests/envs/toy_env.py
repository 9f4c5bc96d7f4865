"""A user's own environment: say the number that was asked for."""

from __future__ import annotations

from collections.abc import Iterable

from turnwise.errors import DataError
from turnwise.types import Message, Observation, Task


class Toy:
    def __init__(self, size: int = 10, kind: str = "list") -> None:
        self.wanted: str | None = None
        self.done = False

    @staticmethod
    def tasks(size: int = 10, kind: str = "list") -> Iterable[Task]:
        found = [Task(f"toy/{n}", {"n": n}) for n in range(size)]
        return found if kind == "list" else (task for task in found)

    async def start(self, task: Task) -> Observation:
        if self.wanted is not None:
            raise DataError("started twice")
        self.wanted = str(task.data["n"])
        return Observation([{"role": "user", "content": f"Say {self.wanted}."}])

    async def step(self, message: Message) -> Observation:
        if self.done or self.wanted is None:
            raise DataError("not playing")
        self.done = True
        right = message["content"] == self.wanted
        return Observation(reward=float(right), done=True, metrics={"success": float(right)})

    async def close(self) -> None:
        pass


class Doubled(Toy):
    @staticmethod
    def tasks(size: int = 10, kind: str = "list") -> Iterable[Task]:
        return [*Toy.tasks(size), *Toy.tasks(size)]


class Half:
    """Lacks most of an environment."""

    async def start(self, task: Task) -> Observation:
        return Observation()
