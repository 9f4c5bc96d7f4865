"""An environment that tells the player what its oracle knows, and remembers how much of the conversation that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from turnwise.errors import DataError
from turnwise.train.oracle import told
from turnwise.types import Env, Message, Observation, Task, Tool, Trajectory


class Watched:
    """Implements Env around another. `tools` are what the player is given; the first `hints` messages are the
    oracle's."""

    def __init__(self, env: Env, *, hint: bool) -> None:
        self.env = env
        self.hint = hint
        self.tools: list[Tool] | None = None
        self.hints = 0

    @staticmethod
    def tasks() -> Iterable[Task]:
        """None of its own."""
        return ()

    async def start(self, task: Task) -> Observation:
        seen = await self.env.start(task)
        self.tools = seen.tools
        if not self.hint:
            return seen
        said = told(Trajectory("", task, 0, 0, 0, oracle=seen.oracle))
        if not said:
            raise DataError(
                f"found oracle = true, and task {task.key} has no oracle messages; expected some: from the environment "
                "(Observation.oracle, at the start), or `oracle` in the task's data"
            )
        self.hints = len(said)
        return replace(seen, messages=[*said, *seen.messages])

    async def step(self, message: Message) -> Observation:
        return await self.env.step(message)

    async def close(self) -> None:
        await self.env.close()
