"""An engine that has no room now is asked again, a little later each time; only the episode's time ends that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnwise.errors import EngineFull

T = TypeVar("T")
FIRST_S, LONGEST_S = 0.05, 2.0


async def patient(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` returns once there is room."""
    wait_s = FIRST_S
    while True:
        try:
            return await ask()
        except EngineFull:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_S)
