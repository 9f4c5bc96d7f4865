"""Summaries by a model behind an engine: what it reads, how long it may write, and the turn that is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from halve import BYTES

from turnwise.condense.ask import ask, room
from turnwise.condense.model import Model
from turnwise.condense.written import Request, Written
from turnwise.engine import LocalEngine
from turnwise.errors import EngineError, EngineFull
from turnwise.testing import FakeEngine, byte_tokenizer, tiny_model
from turnwise.text import ChatML
from turnwise.types import Sampling, Session

CHATML = ChatML(byte_tokenizer())
SAMPLING = Sampling(temperature=0.7, stop_ids=(CHATML.end,))
REQUEST = Request("A long story.", 10, "who?", 7)


def ids(text: str) -> list[int]:
    found: list[int] = CHATML.tokenizer.encode(text, add_special_tokens=False)
    return found


def shorten(engine: FakeEngine, sampled: bool = True, reasoning: int = 0, request: Request = REQUEST) -> Written:
    model = Model(engine, CHATML, BYTES, SAMPLING, reasoning, sampled)
    return asyncio.run(model.shorten(request))


def test_a_model_is_told_the_text_the_budget_and_the_query():
    system, user = ask(REQUEST)
    assert system["role"] == "system" and all(
        word in user["content"] for word in ("10 tokens", "who?", "A long story.")
    )
    assert "helps" not in ask(Request("text", 5, "", 0))[1]["content"]


def test_the_policy_s_summary_comes_with_the_turn_it_was_sampled_in():
    engine = FakeEngine([[*ids("short"), CHATML.end]])
    found = shorten(engine)
    assert (found.text, found.why) == ("short", "") and found.turn is not None
    assert found.turn.agent == "summary" and found.turn.temperature == 0.7
    assert found.turn.completion_ids.tolist() == [*ids("short"), CHATML.end]
    assert "A long story." in CHATML.tokenizer.decode(found.turn.prompt_ids)
    assert found.turn.attribution is not None and engine.open_sessions == 0


def test_another_model_s_summary_comes_without():
    assert shorten(FakeEngine([[*ids("short"), CHATML.end]]), sampled=False) == Written("short")


def test_it_may_write_half_as_much_again_and_what_is_cut_there_is_said_to_be():
    found = shorten(FakeEngine([ids("x" * 40)]))
    assert (found.text, found.why) == ("x" * 15, "cut")


def test_reasoning_has_room_of_its_own_and_is_left_out():
    found = shorten(FakeEngine([[*ids("<think>hm, who?</think>\n\nshort"), CHATML.end]]), reasoning=30)
    assert (found.text, found.why) == ("short", "") and room(10, 30) == 45
    assert shorten(FakeEngine([ids("<think>" + "hm " * 40)]), reasoning=30).text is None


def test_a_summary_of_nothing_is_empty():
    assert shorten(FakeEngine([[CHATML.end]]), sampled=False) == Written(None, why="empty")


def test_marks_do_not_get_into_the_text():
    start = CHATML.tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert shorten(FakeEngine([[start, *ids("short"), CHATML.end]])).text == "short"


def test_a_piece_that_the_model_cannot_hold_stays():
    policy = tiny_model()
    request = Request("word " * policy.context, 10, "", 0)
    found = asyncio.run(Model(LocalEngine(policy), CHATML, BYTES, SAMPLING, 0, True).shorten(request))
    assert found == Written(None, why="too_long")


class Full(FakeEngine):
    """Has room only when it is asked for the third time."""

    asked = 0

    async def open(self, prompt_ids: Sequence[int], sampling: Sampling, *, seed: int, **_: Any) -> Any:
        self.asked += 1
        if self.asked < 3:
            raise EngineFull("no room")
        return await super().open(prompt_ids, sampling, seed=seed)


def test_an_engine_without_room_is_asked_again(monkeypatch):
    monkeypatch.setattr("turnwise.condense.patience.FIRST_S", 0.0)
    engine = Full([[*ids("short"), CHATML.end]])
    assert shorten(engine).text == "short" and engine.asked == 3


def test_what_else_is_wrong_with_the_engine_rises_and_leaves_no_session_open():
    engine = FakeEngine([])
    with pytest.raises(EngineError, match="all are said"):
        shorten(engine)
    assert engine.open_sessions == 0


def test_a_session_is_closed_when_the_one_who_waits_is_cancelled():
    class Hung(FakeEngine):
        async def step(self, session: Session, new_ids: Sequence[int], *_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

    async def run() -> int:
        engine = Hung([])
        task = asyncio.create_task(Model(engine, CHATML, BYTES, SAMPLING, 0, True).shorten(REQUEST))
        while not engine.open_sessions:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return engine.open_sessions

    assert asyncio.run(run()) == 0
