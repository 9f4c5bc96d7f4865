"""One episode as a conversation in HTML: a bubble a message, tool calls readable, long texts folded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from turnwise.runs.axes import short
from turnwise.types import Message, Trajectory

LONG = 480
"""Characters a bubble shows before the rest is folded."""
LEAD = 300
"""Characters of a folded text that stay in view."""
FIRST, LAST = 8, 4
"""Messages shown before and after the folded middle of a long episode."""


def episode(label: str, t: Trajectory) -> str:
    """An article with what happened in the episode, then its messages."""
    facts = [
        ("reward", short(t.reward)),
        ("ended", t.stop_reason.value.replace("_", " ")),
        ("turns", str(len(t.turns))),
        ("sampled tokens", short(t.sampled_tokens)),
        ("task", t.task.key),
    ]
    chips = "".join(f"<li><span>{name}</span> <b>{escape(value)}</b></li>" for name, value in facts)
    error = f'<p class="error"><b>Error.</b> {escape(t.error)}</p>' if t.error else ""
    return (
        f'<article class="episode"><h3>{escape(label)}</h3><ul class="chips">{chips}</ul>{error}'
        f'<div class="chat">{conversation(t.messages)}</div></article>'
    )


def conversation(messages: Sequence[Message]) -> str:
    """All messages; the middle of a long conversation waits behind a fold."""
    bubbles = [bubble(m) for m in messages]
    if not bubbles:
        return '<p class="quiet">No messages.</p>'
    hidden = bubbles[FIRST:-LAST]
    if len(hidden) < 3:
        return "".join(bubbles)
    middle = f"<details><summary>{len(hidden)} more messages</summary>{''.join(hidden)}</details>"
    return "".join([*bubbles[:FIRST], middle, *bubbles[-LAST:]])


def bubble(message: Message) -> str:
    """One message: who speaks, its thoughts, its text, its tool calls."""
    role = str(message.get("role", "unknown"))
    name = message.get("name")
    who = f"{role} · {name}" if name else role
    side = role if role in {"system", "user", "assistant", "tool"} else "other"
    parts = [_thoughts(message.get("reasoning_content")), _text(_plain(message.get("content")))]
    parts += [_call(call) for call in message.get("tool_calls") or []]
    body = "".join(parts) or '<p class="quiet">(empty)</p>'
    return f'<div class="bubble {side}"><div class="who">{escape(who)}</div>{body}</div>'


def _plain(content: Any) -> str:
    """The text of a message whose content is a string, nothing, or a list of parts."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", part)) if isinstance(part, Mapping) else str(part) for part in content)
    return str(content)


def _text(text: str) -> str:
    if not text:
        return ""
    if len(text) <= LONG:
        return f'<div class="text">{escape(text)}</div>'
    return (
        f'<div class="text">{escape(text[:LEAD])}…</div>'
        f"<details><summary>{len(text) - LEAD:,} more characters</summary>"
        f'<div class="text">{escape(text[LEAD:])}</div></details>'
    )


def _thoughts(text: Any) -> str:
    if not text:
        return ""
    return f'<details class="thoughts"><summary>Thoughts</summary><div class="text">{escape(str(text))}</div></details>'


def _call(call: Mapping[str, Any]) -> str:
    """A tool call as `name(argument: value, ...)`, its arguments as they stand where they are not JSON."""
    function = call.get("function") or {}
    name, arguments = str(function.get("name", "?")), function.get("arguments", "")
    values = _parsed(arguments)
    if isinstance(values, Mapping):
        rows = [f"{escape(str(k))}: <i>{escape(_value(v))}</i>" for k, v in values.items()]
        inside = ", ".join(rows) if sum(map(len, rows)) < 80 else "\n  " + ",\n  ".join(rows) + "\n"
    else:
        inside = f"<i>{escape(str(arguments))}</i>"
    return f'<pre class="call"><b>{escape(name)}</b>({inside})</pre>'


def _parsed(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return None


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
