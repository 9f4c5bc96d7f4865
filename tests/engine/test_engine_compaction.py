"""Sessions whose cache is compacted on the way: where events strike, what they leave, how they come back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from again import replayed, sharp
from talks import prompt, rounds, spoken

from turnwise.engine import Limits, LocalEngine
from turnwise.engine.session import LocalSession
from turnwise.errors import EngineError
from turnwise.types import (
    Budget,
    Compaction,
    Completion,
    Event,
    Notice,
    Rule,
    Sampling,
    Segments,
    Settings,
    Turns,
)

MODEL = sharp()
SMALL = Settings(ratio=0.3, recent=4)
TALK = Sampling(max_tokens=24)
BUDGET = Budget(64, window=32, protect_tokens=8)


def budget(settings: Settings = SMALL, rule: Rule = BUDGET, protect: int = 4) -> Compaction:
    return Compaction(rule, settings, protect)


async def talk(
    engine: LocalEngine, compaction: Compaction | None, number: int = 0, turns: int = 4, length: int = 30
) -> tuple[LocalSession, list[Completion]]:
    session = await engine.open(prompt(number, length), TALK, seed=number, compaction=compaction)
    said = [await engine.step(session, prompt(number + t, 3 * t + 2) if t else []) for t in range(turns)]
    return session, said


def held(compaction: Compaction | None, number: int = 0, limits: Limits | None = None) -> tuple[LocalSession, list]:
    return asyncio.run(talk(LocalEngine(MODEL, limits), compaction, number))


def off(session: LocalSession, said: list[Completion], events: tuple[Event, ...], settings: Settings) -> float:
    """The largest difference of log-probabilities of sampled tokens to those of the plain cache."""
    expected, at, worst = replayed(MODEL, session.ids, events, settings), 0, 0.0
    for n, completion in enumerate(said):
        at += 30 if not n else 3 * n + 2
        worst = max(worst, np.abs(expected[at - 1 : at - 1 + len(completion.ids)] - completion.logprobs).max())
        at += len(completion.ids)
    return worst


WAYS = [
    SMALL,
    replace(SMALL, method="evict"),
    replace(SMALL, method="delete", carry_ratio=0.25),
    replace(SMALL, method="delete"),
    replace(SMALL, method="delete_reread", carry_head=3, carry_tail=5),
    replace(SMALL, source="suffix"),
    replace(SMALL, source="context"),
    replace(SMALL, source="keys"),
    replace(SMALL, bias=True, ratio=0.1),
    replace(SMALL, select="omp"),
]


@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_log_probabilities_are_those_of_the_plain_cache_with_the_same_events(settings: Settings) -> None:
    rule = replace(BUDGET, max_events=1) if settings.bias else BUDGET
    session, said = held(budget(settings, rule))
    events = said[-1].events
    assert len(events) >= 2 or settings.bias
    assert off(session, said, events, settings) < 1e-4


def test_one_token_earlier_or_later_is_another_computation() -> None:
    session, said = held(budget())
    for by in (-1, 1):
        moved = tuple(replace(e, at=e.at + by) for e in said[-1].events)
        assert off(session, said, moved, SMALL) > 1e-2


def test_a_budget_is_never_passed_and_events_say_what_they_did() -> None:
    async def run() -> None:
        engine, most = LocalEngine(MODEL), list[int]()
        session = await engine.open(prompt(0, 90), Sampling(max_tokens=120), seed=1, compaction=budget())
        said = await engine.step(session, [], listen=lambda _: most.append(session.cache.columns))
        assert max(most) == 64 and len(said.ids) == 120
        for event in said.events:
            assert (event.trigger, event.before, event.after) == ("budget", 64, 64 - 32 + 10)
            assert (event.start, event.end, event.kept.shape) == (4, 36, (2, 2, 10)) and event.kept.dtype == np.int16
            assert event.span == 28 and event.ms > 0 and 0 < event.residual < 1
            assert (np.diff(event.queries) > 0).all() and event.queries.max() < event.at
        assert [e.at for e in said.events] == list(range(64, 210, 22))
        stats = engine.stats()
        assert stats["events"] == len(said.events) and stats["columns_freed"] == 22 * len(said.events)

    asyncio.run(run())


@pytest.mark.parametrize("settings", [SMALL, WAYS[2], WAYS[4], replace(SMALL, bias=True, uniform=False)], ids=str)
def test_neither_chunks_nor_a_crowd_nor_eviction_change_what_a_compacted_session_says(settings: Settings) -> None:
    async def crowd(limits: Limits) -> tuple[list[list[list[int]]], LocalEngine]:
        engine = LocalEngine(MODEL, limits)
        kinds = [budget(settings), None, budget(SMALL, Turns(1)), budget(settings, Segments(20)), budget(settings)]
        told = await asyncio.gather(*(talk(engine, kinds[n % 5], n, length=30 + 9 * n) for n in range(8)))
        engine.check()
        return [spoken(said) for _, said in told], engine

    roomy, _ = asyncio.run(crowd(Limits()))
    assert asyncio.run(crowd(Limits(chunk_tokens=7, mixed_tokens=3, threaded=True)))[0] == roomy
    tight, engine = asyncio.run(crowd(Limits(max_cache_tokens=768)))
    assert tight == roomy and engine.stats()["events_repeated"] > 0 and engine.stats()["evicted"] > 0
    assert engine.stats()["cache_peak_bytes"] <= engine.stats()["cache_limit_bytes"]


def test_a_session_that_returns_has_the_columns_it_had() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL)
        session, said = await talk(engine, budget())
        keys = [
            engine.room.pool.view(k, session.cache.extent)[:, : session.cache.columns].clone()
            for k in engine.room.pool.keys
        ]
        values = [
            engine.room.pool.view(v, session.cache.extent)[:, : session.cache.columns].clone()
            for v in engine.room.pool.values
        ]
        tokens = session.cache.tokens_M.tolist()
        engine.room.evict(session)
        again = await engine.step(session, [], 1)
        assert session.cache.tokens_M.tolist()[: len(tokens)] == tokens and len(again.events) == len(said[-1].events)
        for store, old in ((engine.room.pool.keys, keys), (engine.room.pool.values, values)):
            for layer, before in enumerate(old):
                after = engine.room.pool.view(store[layer], session.cache.extent)[:, : before.shape[1]]
                np.testing.assert_allclose(after.numpy(), before.numpy(), atol=1e-4)

    asyncio.run(run())


def test_a_call_on_an_unread_prompt_has_room_for_all_of_it_whatever_the_budget_will_be() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL)
        session = await engine.open(prompt(0, 300), TALK, seed=0, compaction=budget())
        event = await engine.compact(session, (10, 290), SMALL)
        assert event is not None and (event.at, event.before, event.after) == (299, 299, 103)
        said = await engine.step(session, [9])
        assert said.events[1].at == 299 and said.events[-1].after <= 64
        engine.check()

    asyncio.run(run())


def test_a_region_of_nothing_but_slots_is_compacted_although_nobody_asked_for_them() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL)
        session, _ = await talk(engine, None, turns=2)
        first = await engine.compact(session, (4, 44), SMALL)
        again = await engine.compact(session, (4, 16), SMALL)
        assert first is not None and again is not None and again.slots == 4 and len(again.queries) == 0
        said = await engine.step(session, [9], 5)
        assert np.isfinite(said.logprobs).all() and said.events == (first, again)
        engine.room.evict(session)
        twin = await engine.fork(session, seed=3)
        assert (await engine.step(twin, [], 5)).ids.tolist() == (await engine.step(session, [], 5, seed=3)).ids.tolist()

    asyncio.run(run())


def test_siblings_with_other_seeds_say_other_things_before_and_after_events() -> None:
    async def run() -> list[tuple[int, ...]]:
        engine = LocalEngine(MODEL)
        sampling = Sampling(max_tokens=80)
        sessions = [await engine.open(prompt(0, 50), sampling, seed=s, compaction=budget()) for s in (1, 2, 3, 1)]
        said = await asyncio.gather(*(engine.step(s, []) for s in sessions))
        assert all(len(s.events) >= 2 for s in said) and engine.counts["tokens_shared"] >= 3 * 49
        return [tuple(s.ids.tolist()) for s in said]

    said = asyncio.run(run())
    assert said[0] == said[3] and len(set(said)) == 3
    assert len({ids[60:] for ids in said}) == 3


def test_turns_fire_after_a_response_and_the_last_token_is_not_yet_in_the_cache() -> None:
    session, said = held(budget(SMALL, Turns(1)))
    assert [len(s.events) for s in said] == [0, 1, 2, 3]
    ends = np.cumsum([30 + 24, 5 + 24, 8 + 24, 11 + 24])
    assert [e.at for e in said[-1].events] == [int(end) - 1 for end in ends[1:]]
    first = said[-1].events[0]
    assert (first.start, first.end, first.before) == (4, 54, 82) and first.trigger == "turns"
    second = said[-1].events[1]
    assert (second.start, second.end) == (4, 4 + first.slots + 29)
    assert off(session, said, said[-1].events, SMALL) < 1e-4


def test_segments_fire_after_every_so_many_sampled_tokens_over_turns() -> None:
    session, said = held(budget(SMALL, Segments(20, protect_tokens=8)))
    drawn = [n for s, begun in zip(said, (30, 59, 91, 126), strict=True) for n in range(begun, begun + len(s.ids))]
    assert [e.at for e in said[-1].events] == [drawn[n - 1] for n in (20, 40, 60, 80)]
    assert off(session, said, said[-1].events, SMALL) < 1e-4


def test_a_call_compacts_what_it_names_and_the_next_completion_says_so() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL)
        session, _ = await talk(engine, None, turns=2)
        columns = session.cache.columns
        assert await engine.compact(session, (5, 5)) is None
        with pytest.raises(EngineError, match=rf"found region \[5, 999\) of a cache of {columns} columns"):
            await engine.compact(session, (5, 999))
        event = await engine.compact(session, (5, 45), SMALL)
        assert event is not None and (event.at, event.start, event.end, event.slots) == (columns, 5, 45, 12)
        assert event.trigger == "asked" and session.cache.columns == columns - 28
        whole = await engine.compact(session)
        assert whole is not None and (whole.start, whole.end) == (0, columns - 28)
        said = await engine.step(session, [9])
        assert said.events == (event, whole)
        start = len(session.ids) - len(said.ids)
        cut = replayed(MODEL, session.ids, (event,), SMALL)
        assert len(cut) == len(session.ids) - 1 and start > 0
        unread = await engine.open(prompt(0, 40), TALK, seed=0)
        assert (await engine.compact(unread)).at == 39

    asyncio.run(run())


def test_a_new_model_reads_text_and_events_again_and_keeps_what_was_kept() -> None:
    async def run() -> None:
        policy = sharp()
        engine = LocalEngine(policy)
        session, said = await talk(engine, budget(), turns=2)
        kept = [e.kept for e in said[-1].events]
        policy.model.load_state_dict(sharp(seed=4).model.state_dict())
        engine.update(1)
        assert engine.counts["events_repeated"] == 0
        new = await engine.step(session, [7], 1)
        assert engine.counts["events_repeated"] == len(kept) > 0 and new.policy_versions.tolist() == [1]
        assert [e.kept.tolist() for e in new.events[: len(kept)]] == [k.tolist() for k in kept]

    asyncio.run(run())


def test_weights_that_change_in_the_middle_of_a_step_have_its_events_repeated_where_they_were() -> None:
    async def run(threaded: bool) -> None:
        policy = sharp()
        engine, heard = LocalEngine(policy, Limits(threaded=threaded)), list[int]()
        sampling = Sampling(max_tokens=120)
        session = await engine.open(prompt(0, 50), sampling, seed=1, compaction=budget())
        step = asyncio.create_task(engine.step(session, [], listen=lambda t: heard.append(t.policy_version)))
        while len(heard) < 60:
            await asyncio.sleep(0)
        await engine.pause()
        before = tuple(session.events)
        policy.model.load_state_dict(sharp(seed=4).model.state_dict())
        engine.update(1)
        await engine.resume()
        said = await step
        assert said.events[: len(before)] == before and len(said.events) > len(before) > 1
        assert engine.counts["events_repeated"] == len(before)
        assert said.policy_versions.tolist() == sorted(heard) and {*heard} == {0, 1}
        engine.room.check()

    asyncio.run(run(False))
    asyncio.run(run(True))


def test_a_fork_goes_on_from_the_compacted_cache_without_reading() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL)
        session, said = await talk(engine, budget(), turns=3)
        read = engine.counts["tokens_read"]
        twin = await engine.fork(session, seed=9)
        a, b = await engine.step(twin, [5, 6], 9), await engine.step(session, [5, 6], 9, seed=9)
        assert a.ids.tolist() == b.ids.tolist() and a.events == b.events and len(a.events) >= len(said[-1].events)
        assert engine.counts["tokens_read"] - read == 2 * (1 + 2 + 8)
        await engine.close(session)
        engine.check()

    asyncio.run(run())


def test_a_cancelled_step_takes_its_events_back() -> None:
    async def run(threaded: bool) -> list[list[int]]:
        engine = LocalEngine(MODEL, Limits(threaded=threaded))
        session, said = await talk(engine, budget(), turns=2)
        events, ids = list(session.events), list(session.ids)
        for wait in (3, 20, 40, 55):
            task = asyncio.create_task(engine.step(session, prompt(5, 40), 60))
            await rounds(wait)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert session.events == events and session.ids == ids
            engine.check()
        said.append(await engine.step(session, [9]))
        return spoken(said)

    async def plain() -> list[list[int]]:
        engine = LocalEngine(MODEL)
        session, said = await talk(engine, budget(), turns=2)
        return spoken([*said, await engine.step(session, [9])])

    expected = asyncio.run(plain())
    assert asyncio.run(run(False)) == expected and asyncio.run(run(True)) == expected


def test_a_prompt_that_differs_before_an_event_undoes_it_and_one_that_differs_later_does_not() -> None:
    async def run() -> None:
        engine = LocalEngine(MODEL)
        session, said = await talk(engine, budget(), turns=3)
        events = said[-1].events
        late = await engine.step(session, [*session.ids[:-1], 9], 1, whole=True)
        assert late.events[: len(events)] == events
        early = [*session.ids[: events[-1].at - 1], 9]
        undone = await engine.step(session, early, 1, whole=True, seed=3)
        assert undone.events == events[:-1]
        fresh = await engine.step(session, [8] * 20, 1, whole=True, seed=3)
        assert fresh.events == () and session.cache.columns == 20

    asyncio.run(run())


def test_notices_are_told_after_events_and_marked_as_nobodys_choice() -> None:
    async def run(notice: Notice) -> Completion:
        engine = LocalEngine(MODEL, write_notice=lambda text: [3, *text.encode(), 4])
        compaction = replace(budget(), notice=notice)
        session = await engine.open(
            prompt(0, 50), Sampling(max_tokens=90, top_logprobs=1), seed=1, compaction=compaction
        )
        said = await engine.step(session, [])
        assert session.ids[50:] == said.ids.tolist() and len(said.ids) == 90 == len(said.top) == len(said.injected)
        assert engine.counts["tokens_injected"] == said.injected.sum() > 0
        assert (said.logprobs[said.injected] == 0).all() and (said.logprobs[~said.injected] < 0).all()
        expected = replayed(MODEL, session.ids, said.events, SMALL)[49:]
        np.testing.assert_allclose(said.logprobs[~said.injected], expected[~said.injected], atol=1e-4)
        return said

    said = asyncio.run(run(Notice("{used}/{total}:{remaining}")))
    first = int(np.flatnonzero(said.injected)[0])
    text = [3, *f"{first}/90:{90 - first}".encode(), 4]
    assert said.ids[first : first + len(text)].tolist() == text and said.events[0].at == 50 + first - 1
    often = asyncio.run(run(Notice("{used}", every=10)))
    assert np.flatnonzero(often.injected)[0] == 10


def test_queries_are_stored_for_those_who_are_compacted_and_no_more_than_asked_for() -> None:
    async def run(every: int) -> tuple[LocalSession, LocalEngine]:
        engine = LocalEngine(MODEL, Limits(query_every=every))
        session, _ = await talk(engine, budget())
        return session, engine

    (all_, engine), (half, _) = asyncio.run(run(1)), asyncio.run(run(2))
    assert len(half.events) == len(all_.events) and all((e.queries % 2 == 0).all() for e in half.events)
    assert half.cache.asked(2).sum() < all_.cache.asked(1).sum()
    assert half.cache.queries.size <= all_.cache.queries.size
    plain, _ = asyncio.run(talk(engine, None, turns=1))
    assert plain.cache.queries is None


def test_events_that_fire_together_are_spread_over_borders_so_that_others_decode_between_them() -> None:
    async def run() -> list[int]:
        engine, gaps = LocalEngine(MODEL, Limits(mixed_tokens=8)), list[int]()
        talker = await engine.open(prompt(9, 10), Sampling(max_tokens=120), seed=0)
        step = asyncio.create_task(engine.step(talker, [], listen=lambda _: gaps.append(engine.counts["events"])))
        sessions = [
            await engine.open(prompt(0, 60), Sampling(max_tokens=40), seed=n, compaction=budget()) for n in range(8)
        ]
        await asyncio.gather(step, *(engine.step(s, []) for s in sessions))
        return np.diff(gaps).tolist()

    gaps = asyncio.run(run())
    assert sum(gaps) >= 8 and max(gaps) == 2  # 64 columns a border, 32 an event


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (Compaction(BUDGET, Settings(ratio=0.0)), "found ratio 0.0 and carry_ratio 0.0; expected above 0"),
        (Compaction(BUDGET, Settings(source="repeat")), "found source repeat"),
        (Compaction(BUDGET, SMALL, protect=64), "found max_kv_tokens 64 of which 64 are protected; expected more"),
        (Compaction(Segments(0)), "found every 0 in segments; expected at least 1"),
        (Compaction(Turns(-1)), "found protect_turns -1 in turns"),
        (Compaction(Budget(64, protect_tokens=-9)), "found protect_tokens -9 in budget"),
        (Compaction(BUDGET, Settings(per_slot=0)), "found per_slot 0 in settings"),
        (Compaction(BUDGET, Settings(ridge=0.0)), "found ridge 0.0; expected a number above 0"),
        (Compaction(BUDGET, Settings(source="mine")), "found source 'mine'; expected one of own, suffix"),
        (Compaction(BUDGET, SMALL, notice=Notice("{left}")), "found notice '{left}', every 0; expected a text"),
        (Compaction(BUDGET, SMALL, notice=Notice("{used:99999999999}")), "found notice '{used:99999999999}'"),
        (Compaction(BUDGET, SMALL, notice=Notice()), "found a notice, and this engine cannot write one"),
    ],
)
def test_what_cannot_be_compacted_is_refused_when_it_is_opened(wrong: Compaction, text: str) -> None:
    engine = LocalEngine(MODEL)
    with pytest.raises(EngineError, match=text):
        asyncio.run(engine.open([1], TALK, seed=0, compaction=wrong))
    assert engine.stats()["sessions"] == 0
