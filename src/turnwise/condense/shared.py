"""Equal pieces are condensed once: whoever asks first starts it, the others get the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from turnwise.condense.written import Written


@dataclass(slots=True)
class Shared:
    """Answers by what was asked, for a group of siblings or for one episode."""

    _asked: dict[Hashable, asyncio.Task[Written]] = field(default_factory=dict)
    _apart: list[Shared] = field(default_factory=list)

    def apart(self) -> Shared:
        """For one episode that shares with nobody; closed together with this."""
        self._apart.append(Shared())
        return self._apart[-1]

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[Written]]) -> tuple[Written, bool]:
        """The answer, and whether somebody had asked before.

        One that asks and is cancelled leaves the answer to those who wait; what raises is asked anew next time.
        """
        task, known = self._asked.get(key), True
        if task is None:
            task, known = asyncio.ensure_future(_run(ask)), False
            self._asked[key] = task
        try:
            return await asyncio.shield(task), known
        except Exception:
            if self._asked.get(key) is task:
                del self._asked[key]
            raise

    def close(self) -> None:
        """Nobody waits any more."""
        for other in self._apart:
            other.close()
        for task in self._asked.values():
            task.cancel()


async def _run(ask: Callable[[], Awaitable[Written]]) -> Written:
    return await ask()
