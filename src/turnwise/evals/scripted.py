"""Replies that an episode may be made of when nobody has been trained yet: plain, with reasoning, and a call of each
tool, in the tokens in which a family writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from renderers import Renderer

from turnwise.errors import RenderError
from turnwise.text.reply import said_ids
from turnwise.types import Message, Tool

THOUGHT = "hm"
VALUES: Mapping[str, Any] = {"integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}
"""An argument of each JSON type; any other gets a text."""


def replies(renderer: Renderer, said: Sequence[str], tools: Sequence[Tool]) -> tuple[tuple[int, ...], ...]:
    """The tokens of every reply that this renderer can write, each once."""
    asked: Message = {"role": "user", "content": "?"}
    found: list[tuple[int, ...]] = []
    for message in _messages(said, tools):
        try:
            found.append(said_ids(renderer, [asked], message))
        except RenderError:
            continue  # a form this family has no words for
    return tuple(dict.fromkeys(found))


def _messages(said: Sequence[str], tools: Sequence[Tool]) -> Iterator[Message]:
    calls = [[{"id": "call_0", "type": "function", "function": _call(tool)}] for tool in tools]
    plain: list[Message] = [{"content": text} for text in said]
    plain += [{"content": "", "tool_calls": call} for call in calls]
    for message in plain:
        yield {"role": "assistant", **message}
        yield {"role": "assistant", **message, "reasoning_content": THOUGHT}


def _call(tool: Tool) -> dict[str, Any]:
    """A call with one value for each argument the tool has."""
    function = tool.get("function", tool)
    fields = (function.get("parameters") or {}).get("properties") or {}
    return {"name": function["name"], "arguments": {name: _value(schema) for name, schema in fields.items()}}


def _value(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    return VALUES.get(str(schema.get("type")), "1")
