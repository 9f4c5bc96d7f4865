"""What every engine has to do: in this process, scripted, behind a turnwise server, behind vLLM's route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import real_vllm as server
from served import ADMIN, app_over, listening

from turnwise.engine import LocalEngine
from turnwise.engine.http import HttpEngine
from turnwise.engine.vllm_http import VllmHttpEngine
from turnwise.errors import EngineError
from turnwise.testing import FakeEngine, tiny_model
from turnwise.types import Budget, Compaction, Engine, Sampled, Sampling, Settings, TurnStop
from turnwise.weights.files import publish

PROMPT = [11, 12, 13]
HOW = Sampling(max_tokens=6, stop_ids=(2,))
SCRIPT = [[21, 22, 23, 24, 25, 26], [31, 32, 2]]


@asynccontextmanager
async def local() -> AsyncIterator[Engine]:
    yield LocalEngine(tiny_model())


@asynccontextmanager
async def fake() -> AsyncIterator[Engine]:
    yield FakeEngine(SCRIPT)


@asynccontextmanager
async def http() -> AsyncIterator[Engine]:
    async with listening(app_over()) as url:
        engine = HttpEngine(url, token=ADMIN)
        yield engine
        await engine.aclose()


@asynccontextmanager
async def http_fake() -> AsyncIterator[Engine]:
    async with listening(app_over(FakeEngine(SCRIPT))) as url:
        engine = HttpEngine(url, token=ADMIN)
        yield engine
        await engine.aclose()


@asynccontextmanager
async def vllm() -> AsyncIterator[Engine]:
    """Our own server speaks vLLM's token route."""
    async with listening(app_over()) as url:
        engine = VllmHttpEngine(url, "tiny", token=ADMIN)
        yield engine
        await engine.aclose()


@asynccontextmanager
async def real_vllm() -> AsyncIterator[Engine]:
    engine = VllmHttpEngine(server.url(), server.MODEL.name)
    yield engine
    await engine.aclose()


ENGINES = {"local": local, "fake": fake, "http": http, "http_fake": http_fake, "vllm": vllm, "real_vllm": real_vllm}
REAL = pytest.param("real_vllm", marks=[pytest.mark.vllm, pytest.mark.real])
every = pytest.mark.parametrize("name", [*(name for name in ENGINES if name != "real_vllm"), REAL])


def over(name: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with ENGINES[name]() as engine:
            return await work(engine)

    return asyncio.run(run())


@every
def test_a_completion_has_one_log_probability_and_one_version_a_token(name):
    async def work(engine):
        return await engine.step(await engine.open(PROMPT, HOW, seed=1), [])

    said = over(name, work)
    assert 1 <= len(said.ids) <= HOW.max_tokens
    assert len(said.ids) == len(said.logprobs) == len(said.policy_versions)
    assert (said.logprobs <= 0).all() and (said.policy_versions == 0).all()


@every
def test_a_session_holds_all_it_read_and_sampled(name):
    async def work(engine):
        session = await engine.open(PROMPT, HOW, seed=1)
        first = await engine.step(session, [])
        second = await engine.step(session, [14, 15], 2)
        return list(session.ids), [*PROMPT, *first.ids, 14, 15, *second.ids], second.stop_reason

    held, expected, reason = over(name, work)
    assert held == expected
    assert reason is TurnStop.LENGTH


@every
def test_a_whole_prompt_replaces_what_differs(name):
    async def work(engine):
        session = await engine.open(PROMPT, HOW, seed=1)
        await engine.step(session, [])
        said = await engine.step(session, [*PROMPT[:2], 99], whole=True, seed=5)
        return list(session.ids), [*PROMPT[:2], 99, *said.ids]

    held, expected = over(name, work)
    assert held == expected


@every
def test_a_listener_hears_every_token_in_order(name):
    async def work(engine):
        heard: list[Sampled] = []
        said = await engine.step(await engine.open(PROMPT, HOW, seed=1), [], listen=heard.append)
        return [(t.id, t.logprob) for t in heard], list(zip(said.ids.tolist(), said.logprobs.tolist(), strict=True))

    heard, said = over(name, work)
    assert heard == said


@every
def test_a_fork_goes_on_alone_from_the_same_tokens(name):
    async def work(engine):
        session = await engine.open(PROMPT, HOW, seed=1)
        await engine.step(session, [])
        before = list(session.ids)
        branch = await engine.fork(session, seed=2)
        forked = list(branch.ids)
        await engine.step(branch, [14])
        return before, forked, list(session.ids), list(branch.ids)

    before, forked, after, grown = over(name, work)
    assert before == forked == after
    assert grown[: len(before) + 1] == [*before, 14] and len(grown) > len(before) + 1


@every
def test_a_closed_session_is_refused(name):
    async def work(engine):
        session = await engine.open(PROMPT, HOW, seed=1)
        await engine.close(session)
        calls = [engine.step(session, []), engine.fork(session, seed=2), engine.close(session), engine.compact(session)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(error, EngineError) for error in over(name, work))


@every
def test_a_step_without_tokens_to_read_or_to_sample_is_refused_and_changes_nothing(name):
    async def work(engine):
        empty = await engine.open([], HOW, seed=1)
        session = await engine.open(PROMPT, HOW, seed=1)
        failed = await asyncio.gather(engine.step(empty, []), engine.step(session, [], 0), return_exceptions=True)
        return failed, await engine.step(session, [])

    failed, said = over(name, work)
    assert all(isinstance(error, EngineError) for error in failed)
    assert len(said.ids)


@pytest.mark.parametrize("name", ["local", "fake", "http", "http_fake"])
def test_tokens_carry_the_version_of_the_weights_loaded_last(name, tmp_path):
    place = publish(tiny_model(seed=1).save, tmp_path, 4)

    async def work(engine):
        session = await engine.open(PROMPT, HOW, seed=1)
        before = await engine.step(session, [])
        await engine.load(place, 4)
        return before, await engine.step(session, [14])

    before, after = over(name, work)
    assert (before.policy_versions == 0).all() and (after.policy_versions == 4).all()


@pytest.mark.parametrize("name", ["local", "http"])
def test_a_paused_engine_samples_nothing_until_it_is_resumed(name):
    async def work(engine):
        session = await engine.open(PROMPT, HOW, seed=1)
        await engine.pause()
        step = asyncio.create_task(engine.step(session, []))
        await asyncio.sleep(0.1)
        waiting = not step.done()
        await engine.resume()
        return waiting, await step

    waiting, said = over(name, work)
    assert waiting and len(said.ids)


@pytest.mark.parametrize("name", ["local", "http"])
def test_a_cancelled_step_leaves_the_session_as_it_was(name):
    async def work(engine):
        session = await engine.open(PROMPT, Sampling(max_tokens=3000), seed=1)
        step = asyncio.create_task(engine.step(session, [14]))
        await asyncio.sleep(0.05)
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        other = await engine.step(session, [], 5)
        fresh = await engine.step(await engine.open(PROMPT, HOW, seed=1), [], 5)
        return list(session.ids), other.ids.tolist(), fresh.ids.tolist()

    held, other, fresh = over(name, work)
    assert held == [*PROMPT, *other]
    assert other == fresh


@pytest.mark.parametrize("name", ["http", "vllm"])
def test_behind_a_server_the_first_completion_is_the_local_engine_s(name):
    async def work(engine):
        said = await engine.step(await engine.open(PROMPT, HOW, seed=1), [])
        return said.ids.tolist(), said.logprobs.tolist()

    ids, logprobs = over("local", work)
    found = over(name, work)
    assert found[0] == ids
    assert found[1] == pytest.approx(logprobs, abs=1e-6)


def test_behind_a_turnwise_server_nothing_of_a_completion_is_lost():
    how = Sampling(max_tokens=6, top_p=0.6, top_logprobs=2, stop=("\n",), logit_bias=((9, 3.0),))

    async def work(engine):
        session = await engine.open(PROMPT, how, seed=1)
        return [await engine.step(session, []), await engine.step(session, [14], sampling=HOW)]

    for ours, theirs in zip(over("local", work), over("http", work), strict=True):
        assert theirs.ids.tolist() == ours.ids.tolist()
        assert theirs.top == pytest.approx(ours.top) if not ours.top else theirs.top[0][0][0] == ours.top[0][0][0]
        assert (theirs.stop_reason, theirs.stopped_by) == (ours.stop_reason, ours.stopped_by)
        assert (theirs.support is None) == (ours.support is None)
        if ours.support is not None:
            assert theirs.support.ids.tolist() == ours.support.ids.tolist()
            assert theirs.support.offsets.tolist() == ours.support.offsets.tolist()


def test_behind_a_turnwise_server_compaction_is_the_local_engine_s_and_its_events_arrive_whole():
    compaction = Compaction(Budget(40), Settings(ratio=0.3), protect=len(PROMPT))
    how = Sampling(max_tokens=60)

    async def work(engine):
        session = await engine.open(PROMPT, how, seed=1, compaction=compaction)
        first = await engine.step(session, [])
        asked = await engine.compact(session)
        second = await engine.step(session, [14], 5)
        return [*first.ids.tolist(), *second.ids.tolist()], second.events, asked, list(session.ids)

    ours, theirs = over("local", work), over("http", work)
    assert theirs == ours
    assert len(ours[1]) > 1 and ours[2] in ours[1]


def test_a_compaction_that_frees_nothing_is_none_on_both_sides():
    async def work(engine):
        session = await engine.open(PROMPT, HOW, seed=1, compaction=Compaction(protect=len(PROMPT)))
        return await engine.compact(session)

    assert over("local", work) is None and over("http", work) is None
