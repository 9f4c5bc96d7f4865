"""The same seed draws the same tokens, whatever else the engine does."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from talks import OPEN, prompt, rounds, say, spoken, talk, together

from turnwise.engine import Limits, LocalEngine
from turnwise.errors import EngineError
from turnwise.testing import tiny_model
from turnwise.types import Completion, Sampling, TurnStop

MODEL = tiny_model()
WAYS = [
    Sampling(max_tokens=9),
    Sampling(max_tokens=9, temperature=0.3, top_p=0.8),
    Sampling(max_tokens=9, top_k=5, top_logprobs=3),
    Sampling(max_tokens=9, temperature=0.0, logit_bias=((77, 3.0), (78, -100.0))),
    Sampling(max_tokens=30, min_p=0.1, stop=("e", "zz")),
    Sampling(max_tokens=30, choices=((65, 66, 2), (65, 70, 71, 2), (80, 2))),
]


async def one(engine: LocalEngine, number: int, way: Sampling, turns: int = 2) -> list[Completion]:
    session = await engine.open(prompt(number, 20 + number), way, seed=number)
    return [await engine.step(session, prompt(number + t, 3 * t)) for t in range(turns)]


@pytest.mark.parametrize("threaded", [False, True])
def test_every_request_of_a_batch_of_32_is_sampled_as_if_it_were_alone(threaded: bool) -> None:
    async def crowd() -> list[list[Completion]]:
        engine = LocalEngine(MODEL, Limits(threaded=threaded))
        return list(await asyncio.gather(*(one(engine, n, WAYS[n % len(WAYS)]) for n in range(32))))

    for number, said in enumerate(asyncio.run(crowd())):
        alone = asyncio.run(one(LocalEngine(MODEL), number, WAYS[number % len(WAYS)]))
        for a, b in zip(said, alone, strict=True):
            assert a.ids.tolist() == b.ids.tolist() and (a.stop_reason, a.stopped_by) == (b.stop_reason, b.stopped_by)
            np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)
            assert [[i for i, _ in top] for top in a.top] == [[i for i, _ in top] for top in b.top]
            assert (a.support is None) == (b.support is None) == (not WAYS[number % len(WAYS)].restricted)
            assert a.support is None or a.support.ids.tolist() == b.support.ids.tolist()


def test_several_completions_of_one_prompt_read_it_once_and_differ_by_seed_alone() -> None:
    async def run() -> tuple[list[list[int]], float]:
        engine = LocalEngine(MODEL)
        sessions = [await engine.open(prompt(0, 200), OPEN, seed=seed) for seed in (1, 2, 3, 1)]
        said = await asyncio.gather(*(say(engine, s) for s in sessions))
        return list(said), engine.stats()["tokens_shared"]

    said, shared = asyncio.run(run())
    assert said[0] == said[3] and len({tuple(s) for s in said}) == 3 and shared == 3 * 199


def test_an_update_that_comes_between_two_turns_of_another_session_changes_nothing_said_before_or_without_it() -> None:
    async def run(updated: bool) -> list[list[int]]:
        engine = LocalEngine(MODEL)
        session, other = [await engine.open(prompt(n, 30), OPEN, seed=n) for n in range(2)]
        said = [await engine.step(session, [])]
        await engine.step(other, [])
        if updated:
            engine.update(1)
        said += [await engine.step(session, [7, 8])]
        assert said[1].policy_versions.tolist() == [int(updated)] * len(said[1].ids)
        return spoken(said)

    assert asyncio.run(run(True)) == asyncio.run(run(False))


def test_a_beginning_that_any_session_holds_is_copied_and_only_the_rest_is_read() -> None:
    async def run() -> None:
        engine, system = LocalEngine(MODEL), prompt(0, 100)
        first = await engine.open([*system, *prompt(1, 20)], OPEN, seed=1)
        await say(engine, first)
        read = engine.counts["tokens_read"]
        second = await engine.open([*system, *prompt(2, 20)], OPEN, seed=2)
        said = await say(engine, second)
        assert engine.counts["tokens_read"] - read == 20 + len(said) - 1
        assert engine.counts["tokens_shared"] == 100
        plain = LocalEngine(MODEL)
        assert said == await say(plain, await plain.open([*system, *prompt(2, 20)], OPEN, seed=2))

    asyncio.run(run())


def test_sessions_that_start_together_wait_for_the_one_that_reads_their_system_prompt() -> None:
    async def run() -> tuple[list[list[int]], float]:
        engine, system = LocalEngine(MODEL, Limits(chunk_tokens=64)), prompt(0, 150)
        sessions = [await engine.open([*system, *prompt(n, 9)], OPEN, seed=n) for n in range(1, 6)]
        said = await asyncio.gather(*(say(engine, s) for s in sessions))
        return list(said), engine.counts["tokens_shared"]

    said, shared = asyncio.run(run())
    assert shared == 4 * 150
    for number, ids in enumerate(said, 1):
        engine = LocalEngine(MODEL)
        session = asyncio.run(engine.open([*prompt(0, 150), *prompt(number, 9)], OPEN, seed=number))
        assert asyncio.run(say(engine, session)) == ids


def test_keys_of_old_weights_are_not_handed_on_and_are_kept_only_where_that_is_wanted() -> None:
    async def run(on_update: str) -> tuple[np.ndarray, np.ndarray, float]:
        engine = LocalEngine(tiny_model(), Limits(on_update=on_update))
        session = await engine.open(prompt(0, 60), OPEN, seed=1)
        await engine.step(session, [])
        with torch.no_grad():
            for weight in engine.policy.model.parameters():
                weight.mul_(1.2)
        engine.update(1)
        stale, ids = engine.stats()["sessions_stale"], [*session.ids, 9]
        held = await engine.step(session, [9], seed=5)
        fresh = await engine.step(await engine.open(ids, OPEN, seed=5), [])
        return held.logprobs, fresh.logprobs, stale

    kept, fresh, stale = asyncio.run(run("keep"))
    again, same, none = asyncio.run(run("recompute"))
    assert (stale, none) == (1, 0)
    np.testing.assert_allclose(again, same, atol=1e-5)
    np.testing.assert_allclose(fresh, same, atol=1e-5)
    assert abs(kept[0] - fresh[0]) > 1e-4


def test_sessions_dropped_by_an_update_say_so() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL, Limits(on_update="drop"))
        session = await engine.open(prompt(0, 60), Sampling(max_tokens=500), seed=1)
        step = asyncio.create_task(engine.step(session, []))
        await rounds(5)
        engine.update(1)
        with pytest.raises(EngineError, match="dropped by an update of the weights while"):
            await step
        with pytest.raises(EngineError, match=r"does not hold \(it was dropped by an update of the weights\)"):
            await engine.step(session, [])
        assert engine.stats()["sessions"] == 0
        engine.check()

    asyncio.run(run())


def test_weights_loaded_while_sessions_decode_change_at_a_token_border_and_every_token_says_which_it_is_of(
    tmp_path: Path,
) -> None:
    tiny_model(seed=5).save(tmp_path / "new")

    async def run(threaded: bool) -> None:
        engine = LocalEngine(tiny_model(), Limits(threaded=threaded))
        session = await engine.open(prompt(0, 30), Sampling(max_tokens=60), seed=1)
        heard: list[int] = []
        step = asyncio.create_task(engine.step(session, [], listen=lambda token: heard.append(token.policy_version)))
        while len(heard) < 10:
            await asyncio.sleep(0)
        await engine.load(tmp_path / "new", 4)
        said = await step
        versions = said.policy_versions.tolist()
        assert versions == sorted(versions) == heard and set(versions) == {0, 4}
        first = versions.index(4)
        fresh = LocalEngine(tiny_model(seed=5))
        whole = torch.tensor([session.ids])
        logp = fresh.policy.model(input_ids=whole, use_cache=False).logits[0].log_softmax(-1)
        places = torch.arange(30 + first, 90)
        expected = logp[places - 1, whole[0, places]].detach().numpy()
        np.testing.assert_allclose(said.logprobs[first:], expected, atol=1e-5)

    for threaded in (False, True):
        asyncio.run(run(threaded))


def test_steps_cancelled_at_random_moments_leave_no_trace_in_what_others_say() -> None:
    async def run(seed: int) -> list[list[list[int]]]:
        engine, draws = LocalEngine(MODEL, Limits(threaded=bool(seed % 2), max_cache_tokens=2048)), random.Random(seed)

        async def nuisance(number: int) -> None:
            session = await engine.open(prompt(number, 50), Sampling(max_tokens=200), seed=number)
            for _ in range(4):
                task = asyncio.create_task(engine.step(session, prompt(number, 9)))
                await rounds(draws.randint(0, 30))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await engine.close(session)

        said, *_ = await asyncio.gather(together(engine, range(6)), *(nuisance(n) for n in range(20, 26)))
        engine.check()
        assert engine.room.pool.used == 0
        return said

    alone = [asyncio.run(talk(LocalEngine(MODEL), n)) for n in range(6)]
    for seed in range(4):
        assert asyncio.run(run(seed)) == alone


def test_no_request_inherits_parameters_of_another_or_of_the_one_before_it() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL)
        session = await engine.open(prompt(0, 20), Sampling(max_tokens=5), seed=1)
        await engine.step(session, [], sampling=WAYS[2])
        free = await engine.step(session, [], sampling=Sampling(max_tokens=3), seed=9)
        assert free.support is None and free.top == () and len(free.ids) == 3
        assert free.stop_reason is TurnStop.LENGTH

    asyncio.run(run())
