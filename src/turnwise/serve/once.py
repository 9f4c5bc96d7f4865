"""Steps that carry a number run once: a repeat of the last one gets its answer, whoever asks.

step 0 runs, step 0 again: the first answer; step 1 runs; step 0 or step 3: out of turn
step 2 breaks off with an error or is cancelled: it does not count, and step 2 may be asked for again
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from turnwise.serve.problem import Problem


class Steps:
    """The last numbered step of a session: what was asked, and the task that answers it."""

    def __init__(self) -> None:
        self.next = 0
        self._asked: object = None
        self._task: asyncio.Task[Any] | None = None
        self._waiting = 0

    async def once(self, number: int | None, asked: object, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a step, or wait with those who asked for it before; without a number it just runs.

        When nobody waits any more it is cancelled. A step that differs under the number of one that still runs
        takes its place: its client has given the first one up.
        """
        if number is None:
            return await run()
        if self._task is not None and self._task.cancelling():
            await asyncio.wait({self._task})  # nobody waited for it: this is the first again
        if number == self.next - 1 and self._task is not None and asked == self._asked:
            return await self._wait(self._task)
        if number == self.next - 1 and self._task is not None and not self._task.done():
            await _stop(self._task)
        elif self._task is not None and not self._task.done():
            await asyncio.wait({self._task})
        if number != self.next:
            raise Problem(
                409,
                f"step {number}",
                f"step {self.next}" + (f", or step {self.next - 1} just as it was asked before" if self.next else ""),
                "Number the steps of a session 0, 1, 2, ...",
                param="sequence",
            )
        self.next += 1
        self._asked, self._waiting = asked, 0
        self._task = asyncio.create_task(run())
        self._task.add_done_callback(self._count)
        return await self._wait(self._task)

    def _count(self, task: asyncio.Task[Any]) -> None:
        """A step that failed does not count."""
        if task.cancelled() or task.exception() is not None:
            self.next -= 1
            self._task = None

    async def _wait(self, task: asyncio.Task[Any]) -> Any:
        self._waiting += 1
        try:
            await asyncio.wait({task})
        finally:
            self._waiting -= 1
            if not self._waiting and not task.done():
                await _stop(task)
        if task.cancelled():
            raise Problem(499, "a step that its client has given up", "one that is waited for", "Ask again.")
        return task.result()


async def _stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
