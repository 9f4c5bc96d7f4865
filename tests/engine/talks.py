"""Conversations that tests hold with an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwise.engine import LocalEngine
from turnwise.types import Completion, Sampling, Session

STOP = 2
OPEN = Sampling(max_tokens=9, stop_ids=(STOP,))


def prompt(number: int, length: int) -> list[int]:
    """Tokens that differ from those of other numbers from the first on."""
    return [(number * 37 + i * i) % 250 + 5 for i in range(length)]


async def talk(engine: LocalEngine, number: int, turns: int = 3, length: int = 40) -> list[list[int]]:
    """What is said in a conversation of its own, turn for turn."""
    session = await engine.open(prompt(number, length), OPEN, seed=number)
    said = [await engine.step(session, prompt(number + t, 5 * t)) for t in range(turns)]
    await engine.close(session)
    return spoken(said)


def spoken(said: Sequence[Completion]) -> list[list[int]]:
    return [completion.ids.tolist() for completion in said]


async def together(
    engine: LocalEngine, numbers: Sequence[int], turns: int = 3, length: int = 40
) -> list[list[list[int]]]:
    return list(await asyncio.gather(*(talk(engine, n, turns, length) for n in numbers)))


async def rounds(times: int) -> None:
    """Let the event loop go round some times."""
    for _ in range(times):
        await asyncio.sleep(0)


async def say(engine: LocalEngine, session: Session, new: Sequence[int] = ()) -> list[int]:
    return (await engine.step(session, list(new))).ids.tolist()
