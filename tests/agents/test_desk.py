"""Several calls of one reply, answered by agent and environment, in the order they were made."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.agents.desk import Desk, ordered, rest, told

LOOK = {"name": "look", "parameters": {"properties": {"at": {"type": "string"}}, "required": ["at"]}}
OPEN = {"name": "open", "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}
OWN = {"open": lambda given: f"opened {given['n']}"}


def call(number: int, name: str, **given: Any) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": given}}


def reply(*calls: dict[str, Any], failed: int = 0) -> dict[str, Any]:
    bad = [{"id": f"failed_{n}", "status": "invalid_json", "raw": "{", "name": None} for n in range(failed)]
    return {"role": "assistant", "content": "c", "tool_calls": [*calls], **({"failed_calls": bad} if bad else {})}


def desk(answering: bool = False) -> Desk:
    return Desk([LOOK, OPEN], OWN, answering)


def test_the_agent_answers_its_own_tools_and_the_environment_sees_the_others():
    said = reply(call(1, "look", at="x"), call(2, "open", n=3), call(3, "look", at="y"))
    answered = desk().answers(said)
    left = rest(said, answered)
    assert answered == [told("call_2", "open", "opened 3")]
    assert left == {**said, "tool_calls": [said["tool_calls"][0], said["tool_calls"][2]]}
    env = [told("call_1", "look", "a"), told("call_3", "look", "b")]
    assert [m["content"] for m in ordered(said, answered, env)] == ["a", "opened 3", "b"]


def test_a_reply_of_nothing_but_the_agent_s_own_calls_does_not_reach_the_environment():
    said = reply(call(1, "open", n=3))
    assert rest(said, desk().answers(said)) is None


def test_a_reply_without_calls_reaches_it_whole():
    said = {"role": "assistant", "content": "hi"}
    assert desk().answers(said) == [] and rest(said, []) is said


def test_a_wrong_call_of_the_agent_s_own_tool_is_told_so():
    (answer,) = desk().answers(reply(call(1, "open", n="x")))
    assert answer["content"] == "open has 'n' = \"x\", expected integer; it takes n (integer)"


def test_faulty_calls_are_answered_only_if_asked_to_and_then_the_environment_sees_the_rest():
    said = reply(call(1, "look"), call(2, "look", at="x"), call(3, "loook"), failed=1)
    assert desk().answers(said) == [] and desk().faults(said) == 3
    answered = desk(answering=True).answers(said)
    assert [(m["tool_call_id"], m["content"]) for m in answered] == [
        ("call_1", "look lacks 'at'; it takes at (string)"),
        ("call_3", "no tool 'loook'; there are look, open"),
        ("failed_0", "this tool call cannot be read: invalid json"),
    ]
    assert rest(said, answered) == {"role": "assistant", "content": "c", "tool_calls": [said["tool_calls"][1]]}


def test_tool_messages_without_an_id_answer_the_calls_that_are_left():
    said = reply(call(1, "look", at="x"), call(2, "open", n=3), call(3, "look", at="y"))
    env: list[dict[str, Any]] = [told(None, "look", "a"), {"role": "user", "content": "u"}, told(None, "look", "b")]
    found = ordered(said, [told("call_2", "open", "o")], env)
    assert [m.get("tool_call_id") for m in found] == ["call_1", "call_2", "call_3", None]
    assert [m["content"] for m in found] == ["a", "o", "b", "u"]


@settings(deadline=None)
@given(st.permutations(["call_0", "call_1", "call_2", "failed_0"]), st.integers(0, 4))
def test_answers_come_in_the_order_of_the_calls_whoever_gives_them(order, by_agent):
    said = reply(*(call(n, "look") for n in range(3)), failed=1)
    answers = [told(number, "look", number) for number in order]
    found = ordered(said, answers[:by_agent], [*answers[by_agent:], {"role": "user", "content": "end"}])
    assert [m["content"] for m in found] == ["call_0", "call_1", "call_2", "failed_0", "end"]
