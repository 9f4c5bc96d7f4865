"""The built-in engine: sessions, batching, choices, forks; all on a real (small) model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from turnwise.engine import Limits, LocalEngine
from turnwise.errors import EngineError, ModelError, TooLong
from turnwise.testing import tiny_model
from turnwise.types import Completion, Sampled, Sampling, TurnStop

STOP = 2
OPEN = Sampling(max_tokens=9, stop_ids=(STOP,))
PROMPTS = [list(range(10 + i, 10 + i + 3 + 7 * i)) for i in range(5)]


async def rounds(times: int) -> None:
    """Let the event loop go round some times."""
    for _ in range(times):
        await asyncio.sleep(0)


async def talk(engine: LocalEngine, number: int, turns: int = 3, wait: int = 0) -> tuple[list[int], list[Completion]]:
    """A conversation of some turns, that starts after `wait` rounds of the event loop."""
    await rounds(wait)
    session = await engine.open(PROMPTS[number], OPEN, seed=number)
    said = [await engine.step(session, PROMPTS[(number + t) % 5] if t else []) for t in range(turns)]
    ids = list(session.ids)
    await engine.close(session)
    return ids, said


def replayed(engine: LocalEngine, ids: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        return engine.policy.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)


def test_log_probabilities_of_all_turns_equal_one_forward_over_the_conversation() -> None:
    engine = LocalEngine(tiny_model())
    ids, said = asyncio.run(talk(engine, 2))
    logp, at = replayed(engine, ids), len(PROMPTS[2])
    for turn, completion in enumerate(said):
        at += len(PROMPTS[(2 + turn) % 5]) if turn else 0
        places = torch.arange(at, at + len(completion.ids))
        assert ids[at : at + len(completion.ids)] == completion.ids.tolist()
        expected = logp[places - 1, torch.from_numpy(completion.ids).long()]
        np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-5)
        at += len(completion.ids)


def test_a_session_draws_the_same_tokens_whatever_else_the_engine_runs() -> None:
    async def crowd() -> list[list[int]]:
        engine = LocalEngine(tiny_model())
        return [ids for ids, _ in await asyncio.gather(*(talk(engine, i, wait=2 * i) for i in range(5)))]

    alone = [asyncio.run(talk(LocalEngine(tiny_model()), i))[0] for i in range(5)]
    assert asyncio.run(crowd()) == alone


def test_a_step_reads_only_what_is_new() -> None:
    async def run() -> list[int]:
        engine, read = LocalEngine(tiny_model()), []
        session = await engine.open(PROMPTS[0], Sampling(max_tokens=4), seed=1)
        for new in ([], [5, 6], [7]):
            before = engine.counts["tokens_read"]
            await engine.step(session, new)
            read.append(engine.counts["tokens_read"] - before)
        return read

    # 3 prompt tokens; then the last sampled token of each turn goes in with the new ones.
    assert asyncio.run(run()) == [3 + 3, 1 + 2 + 3, 1 + 1 + 3]


def test_prompts_longer_than_a_chunk_are_read_in_pieces_with_the_same_result() -> None:
    async def crowd(chunk: int) -> list[list[int]]:
        engine = LocalEngine(tiny_model(), Limits(chunk_tokens=chunk))
        return [ids for ids, _ in await asyncio.gather(*(talk(engine, i) for i in range(5)))]

    assert asyncio.run(crowd(7)) == asyncio.run(crowd(8192))


def test_choices_are_the_only_replies_and_forced_tokens_cost_no_forward() -> None:
    choices = ((65, 66, 67, STOP), (65, 70, STOP), (80, STOP))

    async def run(seed: int) -> tuple[Completion, int]:
        engine = LocalEngine(tiny_model())
        session = await engine.open(PROMPTS[1], Sampling(max_tokens=9, choices=choices), seed=seed)
        return await engine.step(session, []), engine.counts["forwards"]

    for seed in range(6):
        said, forwards = asyncio.run(run(seed))
        assert tuple(said.ids.tolist()) in choices and said.stop_reason is TurnStop.STOP
        assert said.support is not None and said.support.of(0).tolist() == [65, 80]
        assert forwards == (2 if said.ids[0] == 65 else 1)
        assert said.logprobs[-1] == 0.0 and said.support.of(len(said.ids) - 1).tolist() == [STOP]


def test_choices_that_begin_one_another_are_refused() -> None:
    async def run() -> None:
        engine = LocalEngine(tiny_model())
        session = await engine.open([1], Sampling(choices=((65,), (65, 66))), seed=0)
        await engine.step(session, [])

    with pytest.raises(EngineError, match="begin others"):
        asyncio.run(run())


def test_a_fork_continues_from_one_reading_and_draws_its_own_tokens() -> None:
    async def run() -> tuple[list[int], list[int], list[int], int]:
        engine = LocalEngine(tiny_model())
        first = await engine.open(PROMPTS[4], OPEN, seed=1)
        await engine.step(first, [])
        twin, other = await engine.fork(first, seed=1), await engine.fork(first, seed=2)
        read = engine.counts["tokens_read"]
        a, b = await engine.step(twin, [9, 9]), await engine.step(other, [9, 9])
        again = await engine.open([*first.ids, 9, 9], OPEN, seed=2)
        shared = engine.counts["tokens_read"] - read
        c = await engine.step(again, [])
        return a.ids.tolist(), b.ids.tolist(), c.ids.tolist(), shared

    a, b, c, read = asyncio.run(run())
    assert b == c and a != b and read <= 2 * (3 + 9)


def test_siblings_read_their_prompt_once_and_draw_as_if_each_had_read_it() -> None:
    async def one(engine: LocalEngine, seed: int) -> list[int]:
        session = await engine.open(PROMPTS[4], OPEN, seed=seed)
        return (await engine.step(session, [])).ids.tolist()

    async def group() -> tuple[list[list[int]], int]:
        engine = LocalEngine(tiny_model())
        said = await asyncio.gather(*(one(engine, seed) for seed in range(4)))
        return said, engine.counts["tokens_shared"]

    said, shared = asyncio.run(group())
    assert said == [asyncio.run(one(LocalEngine(tiny_model()), seed)) for seed in range(4)]
    assert shared == 3 * (len(PROMPTS[4]) - 1) and len({tuple(s) for s in said}) == 4


def test_stop_tokens_end_a_turn_and_stay_in_it() -> None:
    every = Sampling(max_tokens=50, stop_ids=tuple(range(0, 259, 2)))

    async def run() -> Completion:
        engine = LocalEngine(tiny_model())
        return await engine.step(await engine.open([1, 2, 3], every, seed=5), [])

    said = asyncio.run(run())
    assert said.stop_reason is TurnStop.STOP and said.ids[-1] % 2 == 0 and all(said.ids[:-1] % 2)


def test_an_update_stamps_new_tokens_and_rereads_live_sessions_under_the_new_weights() -> None:
    async def run() -> tuple[Completion, Completion, list[int], LocalEngine]:
        engine = LocalEngine(tiny_model())
        session = await engine.open(PROMPTS[1], Sampling(max_tokens=4), seed=1)
        old = await engine.step(session, [])
        with torch.no_grad():
            for weight in engine.policy.model.parameters():
                weight.mul_(1.1)
        engine.update(1)
        return old, await engine.step(session, [7]), list(session.ids), engine

    old, new, ids, engine = asyncio.run(run())
    assert (old.policy_versions.tolist(), new.policy_versions.tolist()) == ([0] * 4, [1] * 4)
    places = torch.arange(len(ids) - 4, len(ids))
    expected = replayed(engine, ids)[places - 1, torch.from_numpy(new.ids).long()]
    np.testing.assert_allclose(new.logprobs, expected.numpy(), atol=1e-5)


def test_a_step_that_is_cancelled_frees_its_session_and_leaves_the_others_alone() -> None:
    async def run() -> tuple[list[int], list[int]]:
        engine = LocalEngine(tiny_model())
        lost = await engine.open(PROMPTS[3], Sampling(max_tokens=500), seed=3)
        task = asyncio.create_task(engine.step(lost, []))
        kept = asyncio.create_task(talk(engine, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        ids, _ = await kept
        await engine.close(lost)
        return ids, (await talk(LocalEngine(tiny_model()), 1))[0]

    ids, alone = asyncio.run(run())
    assert ids == alone


def test_requests_no_engine_can_serve_say_what_was_found() -> None:
    async def run() -> None:
        engine = LocalEngine(tiny_model())
        session = await engine.open([], OPEN, seed=0)
        with pytest.raises(EngineError, match="found 0 tokens to read"):
            await engine.step(session, [])
        await engine.close(session)
        with pytest.raises(EngineError, match="does not hold"):
            await engine.step(session, [1])

    asyncio.run(run())


def test_a_closed_slot_is_used_again_and_holds_nothing_of_its_past() -> None:
    async def run() -> list[list[int]]:
        engine = LocalEngine(tiny_model())
        return [(await talk(engine, n))[0] for n in (4, 0, 4)]

    first, _, third = asyncio.run(run())
    assert first == third


def test_closing_a_session_ends_the_step_that_runs_on_it_with_an_error() -> None:
    async def run() -> None:
        engine = LocalEngine(tiny_model())
        session = await engine.open(PROMPTS[1], Sampling(max_tokens=500), seed=1)
        step = asyncio.create_task(engine.step(session, []))
        await asyncio.sleep(0)
        await engine.close(session)
        with pytest.raises(EngineError, match="closed while"):
            await step

    asyncio.run(run())


def test_a_fork_that_is_cancelled_while_it_waits_leaves_no_session_behind() -> None:
    async def run() -> float:
        engine = LocalEngine(tiny_model())
        first = await engine.open(PROMPTS[3], OPEN, seed=1)
        async with engine.schedule.border:
            fork = asyncio.create_task(engine.fork(first, seed=7))
            await rounds(3)
            fork.cancel()
            await asyncio.gather(fork, return_exceptions=True)
        return engine.stats()["sessions"]

    assert asyncio.run(run()) == 1


def test_late_and_many_forks_hold_the_prefix_in_slots_the_pool_has_not_grown_to() -> None:
    async def run() -> tuple[list[list[int]], list[int], list[int]]:
        engine = LocalEngine(tiny_model())
        first = await engine.open(PROMPTS[3], Sampling(max_tokens=4), seed=1)
        await engine.step(first, [])
        forks = [await engine.fork(first, seed=7) for _ in range(20)]
        said = [(await engine.step(fork, [5])).ids.tolist() for fork in forks]
        late = [await engine.open(PROMPTS[3], Sampling(max_tokens=4), seed=9) for _ in range(12)][-1]
        alone = LocalEngine(tiny_model())
        plain = await alone.step(await alone.open(PROMPTS[3], Sampling(max_tokens=4), seed=9), [])
        return said, (await engine.step(late, [])).ids.tolist(), plain.ids.tolist()

    said, late, plain = asyncio.run(run())
    assert len({tuple(s) for s in said}) == 1 and late == plain


def test_a_refused_or_cancelled_step_leaves_the_session_as_it_was() -> None:
    async def run() -> None:
        engine = LocalEngine(tiny_model())
        session = await engine.open(PROMPTS[1], Sampling(max_tokens=400), seed=1)
        with pytest.raises(EngineError, match="max_tokens 0"):
            await engine.step(session, [5, 6], 0)
        with pytest.raises(EngineError, match="token ids 5 to 999999; expected 0 to 258"):
            await engine.step(session, [5, 999999])
        with pytest.raises(TooLong, match="expected fewer than the model's 4096"):
            await engine.step(session, [5] * 4096)
        for new, whole in (([7], False), ([PROMPTS[1][0], 9, 9], True)):
            task = asyncio.create_task(engine.step(session, new, whole=whole, sampling=OPEN, seed=8))
            await rounds(9)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert list(session.ids) == PROMPTS[1]
        again = await engine.step(session, [7], 4)
        other = LocalEngine(tiny_model())
        twin = await other.open([*PROMPTS[1], 7], Sampling(max_tokens=4), seed=1)
        assert again.ids.tolist() == (await other.step(twin, [])).ids.tolist()

    asyncio.run(run())


def test_steps_and_forks_of_one_session_run_in_the_order_they_were_asked_for() -> None:
    async def run(together: bool) -> list[list[int]]:
        engine = LocalEngine(tiny_model())
        session = await engine.open(PROMPTS[1], OPEN, seed=1)

        async def fork() -> Completion:
            return await engine.step(await engine.fork(session, seed=4), [])

        calls = [lambda: engine.step(session, [7]), fork, lambda: engine.step(session, [8, 9], seed=2)]
        said = await asyncio.gather(*(call() for call in calls)) if together else [await call() for call in calls]
        return [s.ids.tolist() for s in said]

    assert asyncio.run(run(True)) == asyncio.run(run(False))


def test_a_whole_prompt_keeps_what_the_session_holds_of_it_and_reads_the_rest() -> None:
    async def run() -> None:
        engine = LocalEngine(tiny_model())
        session = await engine.open(PROMPTS[3], Sampling(max_tokens=4), seed=1)
        await engine.step(session, [])
        prompt = [*session.ids[:-2], 200, 201]
        read = engine.counts["tokens_read"]
        said = await engine.step(session, prompt, whole=True, seed=5)
        assert engine.counts["tokens_read"] - read == 2 + 3
        plain = LocalEngine(tiny_model())
        alone = await plain.step(await plain.open(prompt, Sampling(max_tokens=4), seed=5), [])
        assert said.ids.tolist() == alone.ids.tolist() and list(session.ids) == [*prompt, *alone.ids]
        same = await engine.step(session, prompt, whole=True, seed=5)
        np.testing.assert_allclose(same.logprobs, alone.logprobs, atol=1e-5)

    asyncio.run(run())


def test_a_listener_hears_every_token_in_order_before_the_step_returns() -> None:
    heard: list[Sampled] = []

    async def run() -> Completion:
        engine = LocalEngine(tiny_model())
        session = await engine.open([1, 2], Sampling(max_tokens=5, top_logprobs=2), seed=0)
        return await engine.step(session, [], listen=heard.append)

    said = asyncio.run(run())
    assert [h.id for h in heard] == said.ids.tolist() and tuple(h.top for h in heard) == said.top
    assert all(len(top) == 2 and top[0][1] >= top[1][1] for top in said.top)


def test_stop_strings_end_a_step_across_token_borders_and_say_which_it_was() -> None:
    async def run(stop: tuple[str, ...]) -> tuple[Completion, str]:
        engine = LocalEngine(tiny_model())
        session = await engine.open([70, 71, 72], Sampling(max_tokens=40, stop=stop), seed=3)
        said = await engine.step(session, [])
        return said, engine.policy.tokenizer.decode(said.ids.tolist())

    whole, text = asyncio.run(run(("never",)))
    middle = next(text[i : i + 2] for i in range(4, len(text)) if text[i : i + 2].isascii())
    said, _ = asyncio.run(run((middle, "never")))
    assert said.stopped_by == middle and said.stop_reason is TurnStop.STOP
    assert said.ids.tolist() == whole.ids[: len(said.ids)].tolist() and len(said.ids) < len(whole.ids)
    assert whole.stopped_by is None and whole.stop_reason is TurnStop.LENGTH


def test_a_deadline_ends_a_step_with_what_it_has() -> None:
    async def run() -> Completion:
        engine = LocalEngine(tiny_model())
        session = await engine.open([1, 2], Sampling(max_tokens=4000), seed=0)
        return await engine.step(session, [], deadline_s=0.1)

    said = asyncio.run(run())
    assert said.stop_reason is TurnStop.DEADLINE and 0 < len(said.ids) < 4000


def test_a_paused_engine_computes_nothing_until_it_is_resumed() -> None:
    async def run() -> None:
        engine = LocalEngine(tiny_model())
        await engine.pause()
        session = await engine.open([1, 2], Sampling(max_tokens=4), seed=0)
        step = asyncio.create_task(engine.step(session, []))
        await rounds(9)
        assert engine.counts["forwards"] == 0 and engine.stats()["paused"] == 1 and not step.done()
        await engine.resume()
        assert len((await step).ids) == 4

    asyncio.run(run())


def test_weights_from_a_folder_replace_those_of_the_engine_and_only_if_they_fit(tmp_path: Path) -> None:
    tiny_model(seed=5).save(tmp_path / "new")
    tiny_model(width=64).save(tmp_path / "wide")

    async def run() -> None:
        engine, other = LocalEngine(tiny_model()), LocalEngine(tiny_model(seed=5))
        with pytest.raises(ModelError, match="another shape"):
            await engine.load(tmp_path / "wide", 3)
        with pytest.raises(ModelError, match="do not load"):
            await engine.load(tmp_path / "nothing", 3)
        await engine.load(tmp_path / "new", 3)
        said, expected = [await e.step(await e.open([1, 2], OPEN, seed=0), []) for e in (engine, other)]
        assert said.ids.tolist() == expected.ids.tolist() and set(said.policy_versions.tolist()) == {3}

    asyncio.run(run())


def test_weights_that_are_no_numbers_are_said_and_not_sampled_from() -> None:
    async def run() -> None:
        engine = LocalEngine(tiny_model())
        with torch.no_grad():
            engine.policy.model.lm_head.weight.fill_(float("nan"))
        await engine.step(await engine.open([1, 2], OPEN, seed=0), [])

    with pytest.raises(EngineError, match="not finite"):
        asyncio.run(run())
