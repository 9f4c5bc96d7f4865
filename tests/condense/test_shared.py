"""Who asks first starts it; the others wait for the same answer, whatever becomes of the first."""

from __future__ import annotations

import asyncio

import pytest

from turnwise.condense import Shared
from turnwise.condense.written import Written
from turnwise.errors import EngineError


class Slow:
    """Answers when it is let, and counts."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self.go = asyncio.Event()
        self.error = error

    async def __call__(self) -> Written:
        self.asked += 1
        await self.go.wait()
        if self.error:
            raise self.error
        return Written("short")


def test_whoever_asks_first_may_be_cancelled_and_the_others_still_get_the_answer():
    async def run():
        shared, slow = Shared(), Slow()
        first, second = (asyncio.create_task(shared.get("k", slow)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        slow.go.set()
        return await second, slow.asked

    assert asyncio.run(run()) == ((Written("short"), True), 1)


def test_what_raises_reaches_all_who_wait_and_is_asked_anew():
    async def run():
        shared, slow = Shared(), Slow(EngineError("full of errors"))
        slow.go.set()
        found = await asyncio.gather(*(shared.get("k", slow) for _ in range(2)), return_exceptions=True)
        assert [type(error) for error in found] == [EngineError, EngineError]
        slow.error = None
        return await shared.get("k", slow), slow.asked

    assert asyncio.run(run()) == ((Written("short"), False), 2)


@pytest.mark.parametrize("whose", [lambda shared: shared, Shared.apart], ids=["its own", "of one that is apart"])
def test_closing_ends_what_nobody_waits_for(whose):
    async def run():
        shared, slow = Shared(), Slow()
        waiting = asyncio.create_task(whose(shared).get("k", slow))
        await asyncio.sleep(0)
        shared.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
