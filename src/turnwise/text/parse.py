"""Completion tokens to content, reasoning and tool calls written as JSON in <tool_call> tags; every attempt is kept.

Tags are read as text, so it does not matter whether the tokenizer has a token for them.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any

from renderers.base import ParsedResponse, ParsedToolCall, Tokenizer, ToolCallParseStatus

from turnwise.text.pieces import decode

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK, THOUGHT = "<think>", "</think>"


def parse(tokenizer: Tokenizer, ids: Sequence[int], stops: Collection[int], thinking: bool = False) -> ParsedResponse:
    """Read a completion up to its first stop token; `thinking` says that the prompt opened the reasoning."""
    end = next((n for n, token in enumerate(ids) if token in stops), len(ids))
    ids = list(ids[:end])
    text = decode(tokenizer, ids)
    reasoning, start, complete = reason(text, thinking)
    content, calls = split(text, start)
    for call in calls:
        assert call.token_span is not None
        call.token_span = _tokens(tokenizer, ids, *call.token_span)
    return ParsedResponse(content, reasoning, calls, reasoning_complete=complete)


def reason(text: str, thinking: bool = False) -> tuple[str | None, int, bool]:
    """Reasoning (None: none opened), where the content starts, and whether the reasoning was closed.

    The first closing tag ends it and later ones are text; a closing tag without an opening one is text. A tool call
    ends reasoning that nothing closes.
    """
    body = text.lstrip()
    if body.startswith(THINK):
        begin = len(text) - len(body) + len(THINK)
    elif thinking:
        begin = 0
    else:
        return None, 0, True
    close, call = text.find(THOUGHT, begin), text.find(OPEN, begin)
    if close >= 0:
        rest = text[close + len(THOUGHT) :]
        return text[begin:close].strip("\n"), len(text) - len(rest.lstrip("\n")), True
    if call >= 0:
        return text[begin:call].strip("\n"), call, True
    return text[begin:].strip("\n"), len(text), False


def split(text: str, start: int = 0) -> tuple[str, list[ParsedToolCall]]:
    """Content outside the tags, and the calls inside; spans are characters here."""
    calls: list[ParsedToolCall] = []
    outside: list[str] = []
    while (opening := text.find(OPEN, start)) >= 0:
        inner = opening + len(OPEN)
        closing = text.find(CLOSE, inner)
        stop = len(text) if closing < 0 else closing + len(CLOSE)
        outside.append(text[start:opening].removesuffix("\n") if not calls else text[start:opening].strip("\n"))
        calls.append(_call(text[inner : stop if closing < 0 else closing].strip(), closing >= 0, (opening, stop)))
        start = stop
    outside.append(text[start:] if not calls else text[start:].strip("\n"))
    return "\n".join(part for part in outside if part), calls


def _call(raw: str, closed: bool, span: tuple[int, int]) -> ParsedToolCall:
    call = ParsedToolCall(raw, token_span=span)
    value = _json(raw)
    if not closed:
        call.status = ToolCallParseStatus.UNCLOSED_BLOCK
    elif value is None:
        call.status = ToolCallParseStatus.INVALID_JSON
    elif not isinstance(value, dict):
        call.status = ToolCallParseStatus.MALFORMED_STRUCTURE
    elif not isinstance(value.get("name"), str) or not value["name"]:
        call.status = ToolCallParseStatus.MISSING_NAME
    else:
        call.name = value["name"]
        given = value.get("arguments", {})
        call.arguments = _json(given) if isinstance(given, str) else given
        if not isinstance(call.arguments, dict):
            call.arguments, call.status = None, ToolCallParseStatus.MALFORMED_STRUCTURE
    return call


def _json(text: str) -> Any:
    """The value of JSON text, None where it is not JSON (or null)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _tokens(tokenizer: Tokenizer, ids: list[int], begin: int, end: int) -> tuple[int, int]:
    """The tokens that hold characters begin:end, found by decoding prefixes."""

    def holding(char: int) -> int:
        return bisect_right(range(len(ids)), char, key=lambda n: len(decode(tokenizer, ids[: n + 1])))

    return holding(begin), holding(end - 1) + 1
