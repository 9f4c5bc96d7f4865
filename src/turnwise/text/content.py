"""What a message says, as text: content parts joined, tool calls as OpenAI function dicts, arguments as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.errors import RenderError
from turnwise.types import Message

Said = Mapping[str, Any]
"""A message that is only read."""
FAILED = "failed_calls"
"""Message key of tool calls that could not be parsed: a list of {"id", "status", "raw", "name"}."""


def text_of(message: Said) -> str:
    """The content as one string: "ab" and [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}] are equal."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence):
        return "".join(_part(part) for part in content)
    raise RenderError(f"found content of type {type(content).__name__}; expected text or a list of text parts")


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise RenderError(
        f"found content part {str(part)[:80]!r}; expected {{'type': 'text', 'text': ...}}: only text is read"
    )


def role_of(message: Said) -> str:
    """The role, which every message must have."""
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise RenderError(f"found a message with role {role!r}; expected system, user, assistant or tool")
    return role


def calls_of(message: Said) -> list[tuple[str, str]]:
    """Name and arguments (JSON text) of each tool call."""
    return [_call(call) for call in message.get("tool_calls") or []]


def _call(call: Said) -> tuple[str, str]:
    function = call.get("function", call)
    name, arguments = function.get("name"), function.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise RenderError(f"found tool call {str(call)[:80]!r} without a name; expected function.name")
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def plain(message: Said) -> Message:
    """The message as chat templates expect it: content one string, tool arguments objects where they are valid JSON."""
    out: Message = {**message, "role": role_of(message), "content": text_of(message)}
    if out.get("tool_calls"):
        out["tool_calls"] = [{**call, "function": _opened(call)} for call in out["tool_calls"]]
    return out


def _opened(call: Said) -> dict[str, Any]:
    name, text = _call(call)
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = text
    return {**call.get("function", {}), "name": name, "arguments": arguments}
