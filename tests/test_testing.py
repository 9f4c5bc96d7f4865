"""The contract of types.Engine, kept by the scripted engine and by the built-in one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from turnwise.engine import LocalEngine
from turnwise.errors import EngineError
from turnwise.testing import FakeEngine, byte_tokenizer, tiny_model
from turnwise.types import Completion, Engine, Sampling, TurnStop

SCRIPT = [[5, 6, 7, 2], [8, 2], [9, 10, 11, 12, 13, 2]]
LONG = Sampling(max_tokens=50, stop_ids=tuple(range(0, 259, 2)))
Make = Callable[[], Engine]
every = pytest.mark.parametrize(
    "make", [lambda: FakeEngine(SCRIPT), lambda: LocalEngine(tiny_model())], ids=["fake", "local"]
)


def spent(completion: Completion) -> dict[str, Any]:
    """Lengths and types of a completion's arrays."""
    arrays = (completion.ids, completion.logprobs, completion.policy_versions)
    return {"lengths": {len(a) for a in arrays}, "types": [a.dtype for a in arrays]}


@every
def test_a_session_accumulates_what_it_reads_and_says(make: Make) -> None:
    async def run() -> tuple[list[int], list[int]]:
        engine = make()
        session = await engine.open([1, 3], LONG, seed=0)
        assert list(session.ids) == [1, 3]
        first = await engine.step(session, [])
        second = await engine.step(session, [4, 4])
        return list(session.ids), [1, 3, *first.ids.tolist(), 4, 4, *second.ids.tolist()]

    found, expected = asyncio.run(run())
    assert found == expected


@every
def test_a_completion_has_one_log_probability_and_version_a_token(make: Make) -> None:
    async def run() -> Completion:
        engine = make()
        return await engine.step(await engine.open([1], LONG, seed=0), [])

    completion = asyncio.run(run())
    assert spent(completion) == {"lengths": {len(completion.ids)}, "types": [np.int32, np.float32, np.int32]}
    assert len(completion.ids) and (completion.logprobs <= 0).all() and completion.support is None


@every
@pytest.mark.parametrize("sampling", [Sampling(max_tokens=3), Sampling(max_tokens=50)])
def test_max_tokens_cut_a_reply_and_it_says_so(make: Make, sampling: Sampling) -> None:
    async def run() -> Completion:
        engine = make()
        return await engine.step(await engine.open([1], sampling, seed=0), [], 3)

    completion = asyncio.run(run())
    assert (len(completion.ids), completion.stop_reason) == (3, TurnStop.LENGTH)


@every
def test_a_reply_that_ends_by_itself_holds_its_stop_token(make: Make) -> None:
    async def run() -> Completion:
        engine = make()
        return await engine.step(await engine.open([1], LONG, seed=0), [])

    completion = asyncio.run(run())
    assert completion.stop_reason is TurnStop.STOP
    assert completion.ids[-1] in LONG.stop_ids


@every
def test_restricted_sampling_records_one_support_a_token(make: Make) -> None:
    async def run() -> Completion:
        engine = make()
        return await engine.step(await engine.open([1], Sampling(max_tokens=3, top_k=5), seed=0), [])

    completion = asyncio.run(run())
    assert completion.support is not None and len(completion.support.offsets) == len(completion.ids) + 1


@every
def test_a_fork_goes_its_own_way_from_the_same_tokens(make: Make) -> None:
    async def run() -> tuple[list[int], list[int], list[int], int]:
        engine = make()
        session = await engine.open([1, 3], LONG, seed=0)
        await engine.step(session, [])
        before = list(session.ids)
        branch = await engine.fork(session, seed=1)
        assert list(branch.ids) == before
        said = await engine.step(branch, [4])
        assert list(session.ids) == before
        await engine.close(session)
        await engine.step(branch, [4])
        return before, list(branch.ids), said.ids.tolist(), len(before)

    before, after, said, n = asyncio.run(run())
    assert after[: n + 1 + len(said)] == [*before, 4, *said]


@every
def test_a_closed_session_cannot_be_stepped_forked_or_closed_again(make: Make) -> None:
    async def run() -> None:
        engine = make()
        session = await engine.open([1], LONG, seed=0)
        await engine.close(session)
        for call in (engine.step(session, [1]), engine.fork(session, seed=0), engine.close(session)):
            with pytest.raises(EngineError, match="does not hold"):
                await call

    asyncio.run(run())


@every
@pytest.mark.parametrize(("prompt", "limit"), [([], 5), ([1], 0)])
def test_nothing_to_read_or_to_say_is_refused(make: Make, prompt: list[int], limit: int) -> None:
    async def run() -> None:
        engine = make()
        await engine.step(await engine.open(prompt, LONG, seed=0), [], limit)

    with pytest.raises(EngineError, match="expected at least 1"):
        asyncio.run(run())


def test_the_fake_says_its_script_to_each_session_and_asks_for_more_when_it_ends() -> None:
    async def run() -> tuple[list[list[int]], FakeEngine]:
        engine = FakeEngine(SCRIPT)
        one, two = await engine.open([1], Sampling(), seed=0), await engine.open([1], Sampling(), seed=1)
        said = [(await engine.step(s, new)).ids.tolist() for s, new in [(one, []), (two, []), (one, [4]), (one, [])]]
        assert engine.open_sessions == 2
        with pytest.raises(EngineError, match="3 replies and all are said"):
            await engine.step(one, [])
        return said, engine

    said, engine = asyncio.run(run())
    assert said == [SCRIPT[0], SCRIPT[0], SCRIPT[1], SCRIPT[2]]
    assert engine.read == [[], [], [4], [], []]


def test_the_byte_tokenizer_has_a_token_a_byte_and_reads_back_what_it_writes() -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("a\n\u00e9!", add_special_tokens=False)
    assert (len(ids), tokenizer.decode(ids)) == (5, "a\n\u00e9!")


def test_a_tiny_model_speaks_the_byte_tokenizer() -> None:
    policy = tiny_model()
    assert policy.vocab == len(byte_tokenizer()) == 259
    assert policy.tokenizer.encode("user\n") == byte_tokenizer().encode("user\n")


def test_tiny_models_are_equal_by_seed_and_take_another_shape() -> None:
    def weights(**shape: int) -> list[float]:
        return [float(w.detach().sum()) for w in tiny_model(**shape).model.parameters()]

    assert weights() == weights(seed=0) != weights(seed=1)
    assert len(weights(layers=1)) < len(weights())
