"""One reply with several calls, answered by several: the agent by itself, then the environment; the answers go back in
the order of the calls.

    calls 1 look, 2 extract_condensed, 3 go    the environment sees 1 and 3; answers 1 2 3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.agents.calls import arguments, calls_in, fault, function_of
from turnwise.types import Message, Tool

Answer = Callable[[dict[str, Any]], str]
"""A tool of the agent's own: its arguments, which fit its schema, to what it says."""


@dataclass(slots=True)
class Desk:
    """The environment's tools and the agent's own, by name; `answering` is whether it answers faulty calls too."""

    tools: list[Tool]
    own: Mapping[str, Answer] = field(default_factory=dict)
    answering: bool = False

    def faults(self, message: Message) -> int:
        """How many calls of a reply cannot be read or do not fit."""
        return len(_failed(message)) + sum(fault(call, self.tools) is not None for call in calls_in(message))

    def answers(self, message: Message) -> list[Message]:
        """What is said to calls that the environment is not to see."""
        said = [(call, self._answer(call)) for call in calls_in(message)]
        found = [told(str(call.get("id")), _name(call), text) for call, text in said if text is not None]
        if self.answering:
            found += [told(call["id"], call.get("name"), _unread(call)) for call in _failed(message)]
        return found

    def _answer(self, call: Mapping[str, Any]) -> str | None:
        name = _name(call)
        wrong = fault(call, self.tools) if self.answering or name in self.own else None
        return wrong or (self.own[name](arguments(call) or {}) if name in self.own else None)


def told(call_id: str | None, name: str | None, text: str) -> Message:
    """A tool message."""
    message: Message = {"role": "tool", "content": text}
    return {**message, **({"tool_call_id": call_id} if call_id else {}), **({"name": name} if name else {})}


def rest(message: Message, answered: Sequence[Message]) -> Message | None:
    """The reply without the calls that were answered; None where answered calls were all it held."""
    ids = {m.get("tool_call_id") for m in answered}
    if not ids:
        return message
    left = {
        "tool_calls": [call for call in calls_in(message) if call.get("id") not in ids],
        "failed_calls": [call for call in _failed(message) if call.get("id") not in ids],
    }
    kept = {key: value for key, value in message.items() if key not in left}
    return {**kept, **{key: calls for key, calls in left.items() if calls}} if any(left.values()) else None


def ordered(message: Message, answered: Sequence[Message], said: Sequence[Message]) -> list[Message]:
    """All answers in the order of the reply's calls, then whatever else was said, in its own order.

    Tool messages without an id answer, one after another, the calls that nobody else answers.
    """
    calls = [str(call.get("id")) for call in (*calls_in(message), *_failed(message))]
    named = [*answered, *_numbered(calls, answered, said)]
    place = {call: n for n, call in enumerate(calls)}
    return sorted(named, key=lambda m: place.get(str(m.get("tool_call_id")), len(calls)))


def _numbered(calls: Sequence[str], answered: Sequence[Message], said: Sequence[Message]) -> list[Message]:
    """The environment's messages, its tool messages with the id of a call wherever one is left for them."""
    taken = {str(m.get("tool_call_id")) for m in (*answered, *said)}
    free = iter([call for call in calls if call not in taken])

    def with_id(message: Message) -> Message:
        if message.get("role") != "tool" or message.get("tool_call_id"):
            return message
        call = next(free, None)
        return message if call is None else {**message, "tool_call_id": call}

    return [with_id(message) for message in said]


def _failed(message: Message) -> list[dict[str, Any]]:
    return list(message.get("failed_calls") or [])


def _name(call: Mapping[str, Any]) -> str:
    return str(function_of(call).get("name"))


def _unread(call: Mapping[str, Any]) -> str:
    return f"this tool call cannot be read: {str(call.get('status')).replace('_', ' ')}"
