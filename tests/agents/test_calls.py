"""What is wrong with a tool call, in words that help a model to mend it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from turnwise.agents.calls import arguments, fault

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
RUN = {
    "type": "function",
    "function": {
        "name": "run",
        "parameters": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "steps": {"type": ["integer", "null"]},
                "how": {"enum": ["fast", "slow"]},
            },
            "required": ["code"],
        },
    },
}
BARE = {"name": "look"}
OPEN = {"name": "free", "parameters": {"properties": {"a": {}}, "additionalProperties": True}}
TAKES = "it takes code (string), steps (integer or null, optional), how (anything, optional)"


def call(name: Any, given: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": given}}


@pytest.mark.parametrize("given", [{"code": "1 +"}, '{"code": "1 +"}', '{"code": "", "steps": null, "how": "fast"}'])
def test_arguments_that_fit_are_fine_as_text_and_as_an_object(given):
    assert fault(call("run", given), [RUN]) is None


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("rum", {}, "no tool 'rum'; there are run, look, free"),
        (None, {}, "no tool 'None'; there are run, look, free"),
        ("run", "{", f"the arguments of run are no JSON object; {TAKES}"),
        ("run", "[]", f"the arguments of run are no JSON object; {TAKES}"),
        ("run", [], f"the arguments of run are no JSON object; {TAKES}"),
        ("run", "[" * 100_000, f"the arguments of run are no JSON object; {TAKES}"),
        ("run", {}, f"run lacks 'code'; {TAKES}"),
        ("run", "", f"run lacks 'code'; {TAKES}"),
        ("run", {"code": "", "x": 1, "y": 2}, f"run takes no 'x', 'y'; {TAKES}"),
        ("run", {"code": 3}, f"run has 'code' = 3, expected string; {TAKES}"),
        ("run", {"code": "", "steps": True}, f"run has 'steps' = true, expected integer or null; {TAKES}"),
        ("run", {"code": "", "how": "so"}, f'run has \'how\' = "so", expected one of ["fast", "slow"]; {TAKES}'),
    ],
)
def test_a_fault_says_what_was_found_and_what_the_tool_takes(name, given, expected):
    assert fault(call(name, given), [RUN, BARE, OPEN]) == expected


def test_tools_without_a_schema_or_with_an_open_one_take_anything():
    assert fault(call("look", {"at": 1}), [BARE]) is None and fault(call("free", {"b": 1}), [OPEN]) is None


def test_where_there_are_no_tools_every_call_is_at_fault():
    assert fault(call("run", {}), []) == "no tool 'run'; there are none"


@settings(deadline=None)
@given(JSON, JSON)
def test_whatever_a_call_holds_it_is_fine_or_there_is_a_text_that_says_why_not(name, given):
    assert (fault(call(name, given), [RUN, OPEN]) is None) <= (name in ("run", "free"))
    assume(not isinstance(given, str))  # one that is JSON text means what it says
    told = fault(call("run", json.dumps(given)), [RUN])
    assert (told is None) == (arguments(call("run", given)) is not None and fault(call("run", given), [RUN]) is None)
