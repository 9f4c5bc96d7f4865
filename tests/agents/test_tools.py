"""Episodes with tools: who answers which call, what becomes of wrong ones, and how such episodes end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tooled import Tooled

from turnwise.agents import Limits, Rules, play
from turnwise.agents.diagnostics import calls, chars, read, tokens
from turnwise.testing import FakeEngine, byte_tokenizer
from turnwise.text import ChatML
from turnwise.types import EpisodeStop, Sampling, Task, Trajectory

CHATML = ChatML(byte_tokenizer())
END = CHATML.end
WIDE = Limits(turns=8, tokens=9000, timeout_s=30.0)
PASS = Rules()
SAMPLING = Sampling(max_tokens=300, stop_ids=(END,))


def ids(text: str) -> list[int]:
    found: list[int] = CHATML.tokenizer.encode(text, add_special_tokens=False)
    return found


def call(name: str, **given: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': given})}\n</tool_call>"


def episode(*said: str, rules: Rules = PASS, limits: Limits = WIDE, **env: Any) -> Trajectory:
    """Play against an engine that says these replies."""
    engine, empty = FakeEngine([[*ids(text), END] for text in said]), Trajectory("tooled", Task("t"), 0, 0, 1)
    made = Tooled(**{"seen": [], **env})
    trajectory = asyncio.run(play(made, empty, engine, CHATML, SAMPLING, limits, rules=rules))
    assert engine.open_sessions == 0
    return trajectory


def answers(trajectory: Trajectory) -> list[tuple[str, str | None, str]]:
    return [(m["role"], m.get("tool_call_id"), m["content"]) for m in trajectory.messages if m["role"] != "assistant"]


def test_parallel_calls_are_answered_in_order_each_by_its_id():
    trajectory = episode("\n".join([call("echo", text="a"), call("echo", text="b")]), call("end"))
    assert answers(trajectory) == [
        ("user", None, "go"),
        ("tool", "call_1", "a"),
        ("tool", "call_2", "b"),
        ("tool", "call_3", ""),
    ]
    assert (trajectory.stop_reason, trajectory.reward) == (EpisodeStop.DONE, 1.0)


def test_a_tool_that_raises_toolerror_answers_every_call_with_its_words_and_the_episode_goes_on():
    trajectory = episode("\n".join([call("echo", text="a"), call("shout")]), call("end"))
    assert answers(trajectory)[1:3] == [("tool", "call_1", "do not shout"), ("tool", "call_2", "do not shout")]
    assert (trajectory.stop_reason, trajectory.error) == (EpisodeStop.DONE, None)


def test_any_other_exception_of_a_tool_is_the_environment_s_failure():
    trajectory = episode(call("boom"))
    assert (trajectory.stop_reason, trajectory.error) == (EpisodeStop.ENV_ERROR, "ValueError('boom')")


WRONG = [
    call("rum"),
    call("echo"),
    call("echo", text=1),
    call("echo", text="a", more=2),
    "<tool_call>\n{\n</tool_call>",
]


@pytest.mark.parametrize("wrong", WRONG)
def test_with_answer_the_model_is_told_what_was_wrong_and_the_environment_is_not(wrong):
    seen: list[Any] = []
    trajectory = episode(wrong, call("end"), rules=Rules(bad_call="answer"), seen=seen)
    role, number, text = answers(trajectory)[1]
    assert (role, len(seen), trajectory.stop_reason) == ("tool", 1, EpisodeStop.DONE)
    assert number in ("call_1", "failed_1") and any(word in text for word in ("no tool", "echo", "cannot be read"))
    assert trajectory.metrics["calls/faults"] == 1.0


@pytest.mark.parametrize("wrong", WRONG)
def test_with_end_such_a_reply_is_the_last(wrong):
    seen: list[Any] = []
    trajectory = episode(wrong, rules=Rules(bad_call="end"), seen=seen)
    assert (trajectory.stop_reason, trajectory.error, seen) == (EpisodeStop.PARSE_ERROR, None, [])
    assert len(trajectory.turns) == 1 and trajectory.messages[-1]["role"] == "assistant"


def test_with_pass_the_environment_sees_the_reply_as_it_is():
    seen: list[Any] = []
    trajectory = episode("<tool_call>\n{\n</tool_call>", call("end"), seen=seen)
    assert seen[0]["failed_calls"][0]["status"] == "invalid_json" and trajectory.stop_reason is EpisodeStop.DONE


def test_right_calls_beside_a_wrong_one_reach_the_environment():
    seen: list[Any] = []
    both = "\n".join([call("rum"), call("echo", text="a")])
    trajectory = episode(both, call("end"), rules=Rules(bad_call="answer"), seen=seen)
    assert [c["id"] for c in seen[0]["tool_calls"]] == ["call_2"]
    assert [a[1] for a in answers(trajectory)[1:3]] == ["call_1", "call_2"]


def test_a_reply_without_a_call_ends_the_episode_if_asked_to_once_the_environment_has_seen_it():
    rules = Rules(no_call="end")
    seen: list[Any] = []
    trajectory = episode("I give up", rules=rules, seen=seen)
    assert (trajectory.stop_reason, len(seen)) == (EpisodeStop.NO_TOOL_CALL, 1)
    assert episode("the answer", rules=rules, done_without=True).stop_reason is EpisodeStop.DONE
    assert episode("hm", call("end")).stop_reason is EpisodeStop.DONE
    assert episode("<tool_call>\n{", call("end"), rules=rules).stop_reason is EpisodeStop.DONE


def test_a_reply_that_was_cut_ends_the_episode_if_asked_to():
    long = "x" * 400
    assert episode(long, rules=Rules(cut="end")).stop_reason is EpisodeStop.LENGTH
    assert episode(long, call("end")).stop_reason is EpisodeStop.DONE
    assert episode("<tool_call>" + long, rules=Rules(cut="end", no_call="end")).stop_reason is EpisodeStop.LENGTH


def test_what_an_environment_offers_beside_its_messages_is_kept_for_columns():
    assert episode(call("end")).extra == {"kind": "tooled"}


def test_calls_characters_and_tokens_are_counted_by_role():
    first = episode("\n".join([call("echo", text="abc"), call("echo", text="d")]), "<tool_call>{", "no", call("end"))
    found = calls([first])
    assert found == {"calls/made": 3.0, "calls/use_rate": 0.75, "calls/parse_failures": 0.25}
    assert chars([first])["tool"] == 4 and chars([first])["user"] == len("go" + "call a tool" * 2)
    counted = tokens([first])
    assert counted["sampled"] == first.sampled_tokens
    assert counted.total() == read(first) + first.sampled_tokens == len(first.turns[-1].ids)
    assert counted.keys() == {"user", "tool", "scaffold", "sampled"}


def test_episodes_without_tools_say_nothing_about_calls():
    assert calls([Trajectory("e", Task("t"), 0, 0, 0)]) == {}
