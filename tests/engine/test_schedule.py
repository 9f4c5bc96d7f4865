"""Who is served when: turns over clients, shares of a forward pass, and nobody who waits for ever."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from talks import prompt, rounds

from turnwise.engine import Limits, LocalEngine
from turnwise.engine.batch import shares
from turnwise.testing import tiny_model
from turnwise.types import Sampling

MODEL = tiny_model()


@given(st.lists(st.integers(1, 500), max_size=30), st.integers(0, 400))
def test_shares_use_all_the_room_and_nobody_gets_more_than_one_who_needs_as_much(lefts: list[int], room: int) -> None:
    given_ = shares(lefts, room)
    assert sum(given_) == min(sum(lefts[:room]), room) and all(0 <= g <= n for g, n in zip(given_, lefts, strict=True))
    hungry = [g for g, n in zip(given_, lefts[:room], strict=False) if g < n]
    assert not hungry or max(given_) - min(hungry) <= 1


def test_shares_of_the_example() -> None:
    assert shares([100, 5, 40], 60) == [28, 5, 27] and shares([7, 7, 7], 2) == [1, 1, 0]


def test_a_client_with_many_requests_does_not_hold_up_one_with_few() -> None:
    async def run() -> list[str]:
        engine, done = LocalEngine(MODEL, Limits(max_running=1)), list[str]()

        async def ask(client: str, number: int) -> None:
            session = await engine.open(prompt(number, 9), Sampling(max_tokens=2), seed=0, client=client)
            await engine.step(session, [])
            done.append(client)

        many = [asyncio.create_task(ask("many", n)) for n in range(6)]
        await rounds(2)
        few = [asyncio.create_task(ask("few", n)) for n in range(2)]
        await asyncio.gather(*many, *few)
        return done

    done = asyncio.run(run())
    assert done.index("few") <= 2 and [i for i, c in enumerate(done) if c == "few"][1] <= 4


def test_a_large_request_at_the_head_of_the_line_is_not_passed_by_small_ones_for_ever() -> None:
    async def run() -> list[str]:
        engine, done = LocalEngine(MODEL, Limits(max_cache_tokens=512)), list[str]()

        async def ask(name: str, length: int, number: int) -> None:
            session = await engine.open(prompt(number, length), Sampling(max_tokens=20), seed=0)
            await engine.step(session, [])
            await engine.close(session)
            done.append(name)

        small = [asyncio.create_task(ask("small", 9, n)) for n in range(4)]
        await rounds(3)
        large = asyncio.create_task(ask("large", 480, 9))
        await rounds(3)
        late = [asyncio.create_task(ask("late", 9, 20 + n)) for n in range(8)]
        await asyncio.gather(*small, large, *late)
        return done

    assert asyncio.run(run()).index("large") == 4


def test_a_long_prompt_is_read_in_bounded_pieces_while_others_decode() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL, Limits(mixed_tokens=32))
        heard: list[int] = []
        talker = await engine.open(prompt(1, 9), Sampling(max_tokens=100), seed=0)
        step = asyncio.create_task(engine.step(talker, [], listen=lambda _: heard.append(engine.counts["tokens_read"])))
        while len(heard) < 5:
            await asyncio.sleep(0)
        reader = await engine.open(prompt(2, 1000), Sampling(max_tokens=2), seed=0)
        await asyncio.gather(step, engine.step(reader, []))
        steps = [b - a for a, b in pairwise(heard)]
        assert max(steps) == 33 and sum(s > 1 for s in steps) >= 1000 // 32

    asyncio.run(run())


def test_the_event_loop_goes_round_while_a_threaded_engine_computes() -> None:
    async def run() -> None:
        engine, ticks = LocalEngine(tiny_model(layers=4, width=64), Limits(threaded=True)), 0
        session = await engine.open(prompt(2, 3000), Sampling(max_tokens=1), seed=0)
        step = asyncio.create_task(engine.step(session, []))
        while not step.done():
            await asyncio.sleep(0)
            ticks += engine.room.computing
        assert ticks > 20

    asyncio.run(run())
