"""The compaction routes with real compaction: every field of their answers, and what each wrong request is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import app_over, ask, asks
from wrong_compactions import WRONG, table

from turnwise.engine import LocalEngine
from turnwise.testing import tiny_model
from turnwise.types import Budget, Compaction, Sampling, Settings

PROMPT = list(range(10, 40))
FREE = {"seed": 3, "stop_token_ids": []}


def generate(**more: Any) -> dict[str, Any]:
    said = ask("/compact_generate", {"prompt_ids": PROMPT, **FREE, **more})
    assert said.status_code == 200, said.text
    return said.json()


def test_a_budget_keeps_the_cache_within_it_and_the_tokens_are_the_engine_s():
    async def alone() -> list[int]:
        engine = LocalEngine(tiny_model())
        how = Sampling(temperature=0.7, max_tokens=90, top_p=0.95)
        compaction = Compaction(Budget(60), Settings(ratio=0.3, carry_ratio=0.5), protect=len(PROMPT))
        session = await engine.open(PROMPT, how, seed=3, compaction=compaction)
        return (await engine.step(session, [])).ids.tolist()

    said = generate(max_kv_len=60, max_total_tokens=90)
    events = said["diagnostics"]["compaction_events"]
    assert said["all_token_ids"] == asyncio.run(alone())
    assert [e["segment"] for e in events] == [0, 1, 2]
    assert all(e["kv_len_before"] <= 60 and e["window"] == 30 and e["kept"] == 9 for e in events)
    assert all(np.shape(e["kept_indices"]) == (2, 2, 9) for e in events)
    assert said["diagnostics"]["segment_boundaries"] == [30, 51, 72]


def test_segments_compact_so_many_times_and_the_answer_counts():
    said = generate(max_seq_len=130, n_compacts=3)
    told = said["diagnostics"]
    assert (told["prompt_len"], told["total_tokens"], said["stop_reason"]) == (30, 100, "length")
    assert [e["trigger"] for e in told["compaction_events"]] == ["segments"] * 3
    assert told["mean_logprob"] == pytest.approx(np.mean(said["all_logprobs"]))
    assert said["completion_mask"] == [1] * 100


def test_markovian_keeps_the_newest_fraction_of_the_window():
    said = generate(max_kv_len=60, max_total_tokens=40, compaction_mode="markovian", carryover_ratio=0.5)
    (event,) = said["diagnostics"]["compaction_events"]
    assert event["kept_indices"] == [[list(range(15, 30))] * 2] * 2


def test_a_budget_message_is_told_and_masked():
    template = "{remaining} of {total} left, {used} used."
    said = generate(
        max_kv_len=200,
        max_total_tokens=150,
        inject_budget_message=True,
        inject_budget_every=40,
        budget_message_template=template,
    )
    mask = np.array(said["completion_mask"])
    text = tiny_model().tokenizer.decode(np.array(said["all_token_ids"])[mask == 0].tolist())
    assert "user\n110 of 150 left, 40 used." in text
    assert np.flatnonzero(mask == 0)[0] == 40
    assert (np.array(said["all_logprobs"])[mask == 1] < 0).all()


CREATE = {"path": "/compact_session/create", "json": {"session_id": "s", "prompt_ids": PROMPT, **FREE}}


def create(**more: Any) -> dict[str, Any]:
    return {**CREATE, "json": {**CREATE["json"], **more}}


def step(**more: Any) -> dict[str, Any]:
    return {"path": "/compact_session/step", "json": {"session_id": "s", "new_token_ids": [5, 6], **more}}


STATE = {"path": "/compact_session/s", "method": "GET"}
DELETE = {"path": "/compact_session/s", "method": "DELETE"}


def test_a_session_is_created_stepped_looked_at_and_deleted():
    said = asks(app_over(), create(max_kv_len=60, max_response_tokens=40), step(), STATE, DELETE, STATE, step())
    first, second, state = (s.json() for s in said[:3])
    assert [s.status_code for s in said] == [200, 200, 200, 200, 404, 404]
    assert (first["logical_len"], first["current_seq_len"]) == (70, 48)
    assert second["logical_len"] == 112 == state["logical_len"]
    assert second["current_seq_len"] == state["current_seq_len"] <= 60
    assert (state["turns"], state["compactions"], state["max_kv_len"]) == (2, 3, 60)
    assert len(first["diagnostics"]["compaction_events"]) + len(second["diagnostics"]["compaction_events"]) == 3


def test_a_session_without_a_name_is_given_one():
    (said,) = asks(app_over(), create(session_id=None, max_response_tokens=4))
    assert len(said.json()["session_id"]) == 32


def test_a_step_sent_twice_under_one_number_runs_once():
    said = asks(app_over(), create(max_response_tokens=4), step(sequence=0), step(sequence=0), STATE, step(sequence=2))
    assert said[1].json() == said[2].json()
    assert said[3].json()["turns"] == 2
    assert said[4].status_code == 409


def test_turns_are_compacted_but_for_the_last_and_the_budget_beside_is_said_to_be_off():
    opened = create(n_protect_turns=1, compact_window=5, max_kv_len=40, max_response_tokens=20)
    first, second, third = (s.json() for s in asks(app_over(), opened, step(), step()))
    assert first["warnings"] == [
        "n_protect_turns 1 turns the budget off: compact_window has no effect",
        "n_protect_turns 1 turns the budget off: max_kv_len has no effect",
    ]
    assert first["diagnostics"]["compaction_events"] == []
    assert [e["trigger"] for e in second["diagnostics"]["compaction_events"]] == ["turns"]
    assert third["current_seq_len"] < third["logical_len"]


def test_a_compaction_that_is_asked_for_strikes_before_the_new_tokens_are_read():
    said = asks(app_over(), create(max_response_tokens=20), step(trigger_compact=True))
    (event,) = said[1].json()["diagnostics"]["compaction_events"]
    assert (event["trigger"], event["at"]) == ("asked", 49)


@pytest.mark.parametrize(("path", "body", "status", "message"), WRONG, ids=[f"{n}" for n in range(len(WRONG))])
def test_a_wrong_request_is_told_what_was_found_what_was_expected_and_the_mend(path, body, status, message):
    app = app_over(max_sessions=1)
    said = asks(app, create(max_response_tokens=4), {"path": path, "json": body}, STATE)
    assert (said[1].status_code, said[1].json()["error"]["message"]) == (status, message)
    assert said[2].status_code == 200


def test_the_page_shows_these_very_messages():
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
    assert table() in page
