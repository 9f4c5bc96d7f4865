"""The pool never holds more than its budget, whatever sessions do, and who was evicted comes back as it was."""

from __future__ import annotations

import asyncio
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from talks import OPEN, prompt, rounds, say, spoken, talk, together

from turnwise.engine import Limits, LocalEngine
from turnwise.engine.pool import Extent, Pool, Shape, rounded
from turnwise.errors import EngineError, EngineFull, TooLong
from turnwise.testing import tiny_model
from turnwise.types import Budget, Compaction, Sampling, Settings, Turns, TurnStop

FEW = Settings(ratio=0.4, recent=2)
SMALL = Limits(max_cache_tokens=512)
MODEL = tiny_model()


def alone(number: int, turns: int = 3) -> list[list[int]]:
    return asyncio.run(talk(LocalEngine(MODEL), number, turns))


def test_a_crowd_that_does_not_fit_says_what_each_would_have_said_alone() -> None:
    engine = LocalEngine(MODEL, SMALL)
    said = asyncio.run(together(engine, range(32)))
    assert said == [alone(n) for n in range(32)]
    stats = engine.stats()
    assert stats["cache_peak_bytes"] <= stats["cache_limit_bytes"] == 512 * engine.room.pool.shape.column_bytes
    assert stats["evicted"] > 0 and stats["tokens_replayed"] > 0 and stats["queued"] > 0
    engine.check()


def test_a_session_that_was_evicted_comes_back_with_the_same_tokens() -> None:
    async def run(limits: Limits) -> tuple[list[list[int]], float]:
        engine = LocalEngine(MODEL, limits)
        sessions = [await engine.open(prompt(n, 60), OPEN, seed=n) for n in range(6)]
        said = [await engine.step(s, prompt(t, 4 * t)) for t in range(3) for s in sessions]
        engine.check()
        return spoken(said), engine.stats()["evicted"]

    roomy, tight = asyncio.run(run(Limits())), asyncio.run(run(Limits(max_cache_tokens=256)))
    assert roomy[0] == tight[0] and roomy[1] == 0 and tight[1] > 6


def test_a_fork_for_which_there_is_no_room_reads_again_and_does_not_cost_its_parent_the_cache() -> None:
    async def run(limits: Limits) -> tuple[list[list[int]], LocalEngine]:
        engine = LocalEngine(MODEL, limits)
        parent = await engine.open(prompt(0, 100), OPEN, seed=0)
        said = [await say(engine, parent)]
        fork = await engine.fork(parent, seed=5)
        assert parent.cache is not None and (fork.cache is None) == (limits.max_cache_tokens is not None)
        return [*said, await say(engine, fork, [7]), await say(engine, parent, [8])], engine

    roomy, _ = asyncio.run(run(Limits()))
    tight, engine = asyncio.run(run(Limits(max_cache_tokens=192)))
    assert tight == roomy and engine.counts["tokens_replayed"] > 100


def test_a_fork_of_a_session_whose_cancelled_step_is_still_leaving_is_idle() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL, Limits(threaded=True))
        parent = await engine.open(prompt(0, 3000), OPEN, seed=0)
        task = asyncio.create_task(engine.step(parent, []))
        while not engine.room.computing:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        fork = await engine.fork(parent, seed=5)
        assert not fork.busy and not fork.waits
        plain = LocalEngine(MODEL)
        assert await say(engine, fork) == await say(plain, await plain.open(prompt(0, 3000), OPEN, seed=5))

    asyncio.run(run())


def test_what_could_never_fit_is_too_long_and_the_engine_goes_on() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL, Limits(max_cache_tokens=128))
        session = await engine.open(prompt(0, 100), OPEN, seed=0)
        with pytest.raises(
            TooLong, match=r"found 100 tokens to read and 50 to sample, which take 150 columns; .* holds, 128"
        ):
            await engine.step(session, [], 50)
        assert len((await engine.step(session, [], 28)).ids) > 0

    asyncio.run(run())


def test_a_budget_in_bytes_is_kept_to_the_byte() -> None:
    async def run() -> None:
        column = LocalEngine(MODEL).room.pool.shape.column_bytes
        engine = LocalEngine(MODEL, Limits(max_cache_bytes=300 * column))
        assert engine.room.pool.columns == 256
        await together(engine, range(6))
        assert engine.stats()["cache_peak_bytes"] <= 300 * column

    asyncio.run(run())


async def _life(engine: LocalEngine, draws: random.Random, number: int) -> None:
    """Opens, steps, forks, diverges, is cancelled and closed, at random."""
    compaction = draws.choice([None, Compaction(Budget(60, 30), FEW, 4), Compaction(Turns(1), FEW)])
    ids = prompt(number % 3, draws.randint(1, 90))
    sessions = [await engine.open(ids, OPEN, seed=number, compaction=compaction)]
    for _ in range(draws.randint(1, 6)):
        session, what = draws.choice(sessions), draws.random()
        if what < 0.2:
            sessions.append(await engine.fork(session, seed=draws.randint(0, 99)))
        elif what < 0.3 and len(sessions) > 1:
            sessions.remove(session)
            await engine.close(session)
        elif what < 0.5:
            task = asyncio.create_task(engine.step(session, prompt(1, 7)))
            await rounds(draws.randint(0, 12))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif what < 0.55:
            await engine.compact(session, settings=FEW)
        elif what < 0.6:
            await engine.step(session, [*session.ids[: draws.randint(1, 40)], 9], whole=True)
        else:
            await engine.step(session, prompt(number, draws.randint(0, 20)), draws.randint(1, 9))
        pool = engine.room.pool
        assert pool.used <= pool.columns == 576
        engine.check()
    for session in sessions:
        await engine.close(session)


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=12, deadline=None)
def test_no_random_life_breaks_the_budget_or_the_count(seed: int, threaded: bool) -> None:
    async def run() -> LocalEngine:
        engine, draws = LocalEngine(MODEL, Limits(max_cache_tokens=600, threaded=threaded)), random.Random(seed)
        await asyncio.gather(*(_life(engine, draws, n) for n in range(8)))
        assert (await talk(engine, 3)) == expected
        return engine

    expected = alone(3)
    engine = asyncio.run(run())
    engine.check()
    assert engine.room.pool.used == 0 and engine.schedule.broken is None


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(0, 1000))
@settings(deadline=None)
@torch.inference_mode()
def test_extents_keep_what_was_written_through_taking_giving_growing_and_tidying(sizes: list[int], seed: int) -> None:
    shape, draws = Shape(1, 2, 1, 1, torch.float32, torch.device("cpu")), random.Random(seed)
    pool, held = Pool(shape, 1024, fixed=bool(seed % 2)), dict[Extent, int]()
    for number, size in enumerate(sizes):
        if held and draws.random() < 0.4:
            gone = draws.choice(list(held))
            held.pop(gone)
            pool.give(gone)
        extent = pool.take(size)
        if extent is not None:
            pool.view(pool.keys[0], extent)[:] = float(number + 1)
            held[extent] = number + 1
        else:
            assert pool.fixed and pool.free < rounded(size)
        pool.check()
    for extent, number in held.items():
        assert (pool.view(pool.keys[0], extent) == number).all()


def test_sizes_of_extents_waste_at_most_a_quarter_beyond_the_grain() -> None:
    assert [rounded(n) for n in (1, 64, 70, 600, 1030)] == [64, 64, 128, 640, 1280]
    assert all(n <= rounded(n) <= max(n + 63, 1.25 * n) for n in range(1, 5000))


def test_limits_on_sessions_clients_and_queues_say_come_again() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL, Limits(max_sessions=3, max_client_sessions=2, max_running=1, max_queued=1))
        a = [await engine.open(prompt(n, 9), Sampling(max_tokens=40), seed=n, client="a") for n in range(2)]
        with pytest.raises(EngineFull, match="found 2 sessions of client 'a'"):
            await engine.open([1], OPEN, seed=0, client="a")
        b = await engine.open([1], OPEN, seed=0, client="b")
        with pytest.raises(EngineFull, match="found 3 sessions"):
            await engine.fork(b, seed=1)
        tasks = [asyncio.create_task(engine.step(s, [])) for s in a]
        await rounds(3)
        with pytest.raises(EngineFull, match="found 1 steps waiting"):
            await engine.step(b, [])
        await asyncio.gather(*tasks)
        await engine.close(a[0])
        await engine.open([1], OPEN, seed=0, client="a")

    asyncio.run(run())


def test_sessions_idle_for_too_long_are_closed_and_say_so() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL, Limits(idle_s=0.05))
        session, other = [await engine.open(prompt(n, 9), OPEN, seed=n) for n in range(2)]
        await say(engine, session)
        await asyncio.sleep(0.1)
        stats = engine.stats()
        assert stats["expired"] == 2 and stats["sessions"] == 0 and stats["cache_bytes"] == 0
        with pytest.raises(EngineError, match=r"does not hold \(it was idle for 0.05 seconds\)"):
            await engine.step(other, [])

    asyncio.run(run())


def test_a_step_in_the_queue_ends_at_its_deadline_with_nothing() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL, Limits(max_running=1))
        first, second = [await engine.open(prompt(n, 9), Sampling(max_tokens=300), seed=n) for n in range(2)]
        long = asyncio.create_task(engine.step(first, []))
        await rounds(2)
        said = await engine.step(second, [], deadline_s=0.02)
        assert said.stop_reason is TurnStop.DEADLINE and len(said.ids) == 0
        assert len((await long).ids) == 300

    asyncio.run(run())
