"""Reading replies: reasoning, tool calls in every state of repair, and text that only looks like either."""

from __future__ import annotations

import pytest

from turnwise.text.parse import reason, split

CALL = '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'


def read(renderer, tokenizer, text):
    """Content, reasoning, and name, arguments, status of each call."""
    parsed = renderer.parse_response(tokenizer.encode(text, add_special_tokens=False))
    calls = [(c.name, c.arguments, str(c.status)) for c in parsed.tool_calls]
    return parsed.content, parsed.reasoning_content, calls


CASES = {
    "plain": ("go  forward\n", ("go  forward\n", None, [])),
    "reasoning": ("<think>\nwhy\n</think>\n\ngo", ("go", "why", [])),
    "two closing tags": ("<think>a</think>b</think>c", ("b</think>c", "a", [])),
    "orphan closing tag": ("a</think>b", ("a</think>b", None, [])),
    "thinking later": ("a <think>b</think>", ("a <think>b</think>", None, [])),
    "call": (f"I look.\n{CALL}", ("I look.", None, [("look", {"at": 1}, "ok")])),
    "call after reasoning": (f"<think>why\n</think>\n\n{CALL}", ("", "why", [("look", {"at": 1}, "ok")])),
    "call ends open reasoning": (f"<think>why{CALL}", ("", "why", [("look", {"at": 1}, "ok")])),
    "arguments as text": (
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 2}"}</tool_call>',
        ("", None, [("f", {"a": 2}, "ok")]),
    ),
    "no arguments": ('<tool_call>{"name": "f"}</tool_call>', ("", None, [("f", {}, "ok")])),
    "no name": ('<tool_call>{"arguments": {}}</tool_call>', ("", None, [(None, None, "missing_name")])),
    "a list": ("<tool_call>[1]</tool_call>", ("", None, [(None, None, "malformed_structure")])),
    "arguments a list": (
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        ("", None, [("f", None, "malformed_structure")]),
    ),
    "not JSON": ("<tool_call>look()</tool_call>", ("", None, [(None, None, "invalid_json")])),
    "nested beyond reason": ("<tool_call>" + "[" * 5000 + "</tool_call>", ("", None, [(None, None, "invalid_json")])),
    "huge number": ("<tool_call>" + "1" * 5000 + "</tool_call>", ("", None, [(None, None, "invalid_json")])),
    "never closed": ('a<tool_call>{"name": "f"}', ("a", None, [(None, None, "unclosed_block")])),
    "good, bad, good": (
        f"a\n{CALL}\nb\n<tool_call>x</tool_call>{CALL}\nc",
        ("a\nb\nc", None, [("look", {"at": 1}, "ok"), (None, None, "invalid_json"), ("look", {"at": 1}, "ok")]),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["chatml on plain tags", "chatml on tag tokens", "chatml on smollm2"])
def test_replies_are_read_alike_whether_tags_are_tokens_or_text(name, case, renderers, tokenizers):
    text, expected = CASES[case]
    assert read(renderers[name], tokenizers[name], text) == expected


def test_reasoning_that_nothing_closes_is_reported_open():
    assert reason("<think>\nstill") == ("still", 13, False)
    assert reason("still", thinking=True) == ("still", 5, False)
    assert reason("so</think>\ngo", thinking=True) == ("so", 11, True)


@pytest.mark.parametrize("name", ["chatml on plain tags", "chatml on tag tokens"])
def test_a_call_says_which_tokens_hold_it(name, renderers, tokenizers):
    ids = tokenizers[name].encode(f"ü {CALL} x", add_special_tokens=False)
    (call,) = renderers[name].parse_response(ids).tool_calls
    start, end = call.token_span
    assert tokenizers[name].decode(ids[start:end]) == CALL
    assert call.raw == CALL.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")


def test_nothing_behind_the_first_stop_token_is_read(renderers, tokenizers):
    ids = tokenizers["chatml on smollm2"].encode("go<|im_end|>\nmore", add_special_tokens=False)
    assert renderers["chatml on smollm2"].parse_response(ids).content == "go"


def test_text_without_tags_is_content_to_the_letter():
    assert split(" a <b> \n\n") == (" a <b> \n\n", [])
