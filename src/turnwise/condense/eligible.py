"""Which messages of a conversation may be condensed, and which of them make a turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from turnwise.text.content import calls_of, text_of
from turnwise.types import Message

KEPT = {"system", "developer"}
"""Roles that are never condensed."""


def border(messages: Sequence[Message], protect: int) -> int:
    """How many messages, from the start, lie before the last `protect` turns; the first input lies before any turn.

    Roles s u A t A t: with protect 1 the border is 4 (s u A t | A t), with 2 or more it is 2, with 0 it is 6.
    """
    replies = replies_in(messages)
    if not replies or not protect:
        return len(messages)
    return replies[max(len(replies) - protect, 0)]


def replies_in(messages: Sequence[Message]) -> list[int]:
    """Where the agent speaks."""
    return [n for n, message in enumerate(messages) if message.get("role") == "assistant"]


def turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages from the first reply on, turn by turn: A t A t u is (A t), (A t u)."""
    replies = replies_in(messages)
    return [list(messages[a:b]) for a, b in pairwise([*replies, len(messages)])]


def transcript(messages: Sequence[Message]) -> str:
    """Messages as one text: "assistant: go\\nassistant calls look({})\\ntool: a wall"."""
    return "\n".join(line for message in messages for line in _lines(message))


def _lines(message: Message) -> list[str]:
    role, text = str(message.get("role")), text_of(message)
    said = [f"{role}: {text}"] if text else []
    return [*said, *(f"{role} calls {name}({arguments})" for name, arguments in calls_of(message))]
