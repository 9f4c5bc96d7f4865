"""Tool calls of a reply, checked against the tools on offer: what is wrong with one, in words for the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnwise.types import Message, Tool

KINDS: dict[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "null": lambda v: v is None,
}
"""JSON Schema's types."""


def function_of(tool_or_call: Mapping[str, Any]) -> dict[str, Any]:
    """The function of a tool or call, which may stand bare."""
    inner = tool_or_call.get("function", tool_or_call)
    return dict(inner) if isinstance(inner, Mapping) else {}


def named(tools: Sequence[Tool]) -> dict[str, dict[str, Any]]:
    """Each tool's function by its name."""
    return {str(f.get("name")): f for f in map(function_of, tools)}


def calls_in(message: Message) -> list[dict[str, Any]]:
    """The calls of a reply that could be read, in order."""
    return list(message.get("tool_calls") or [])


def arguments(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """A call's arguments, given as JSON text or as an object; None where they are neither."""
    given = function_of(call).get("arguments")
    if given is None or given == "":
        return {}
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def fault(call: Mapping[str, Any], tools: Sequence[Tool]) -> str | None:
    """What is wrong with a call, if anything: its name, then its arguments against the tool's schema.

    fault of run_code({"cod": "1 +"}) is "run_code takes no 'cod'; it takes code (string)".
    """
    name = str(function_of(call).get("name"))
    there = named(tools)
    if name not in there:
        return f"no tool {name!r}; there are {', '.join(there)}" if there else f"no tool {name!r}; there are none"
    given = arguments(call)
    schema = there[name].get("parameters") or {}
    if given is None:
        return f"the arguments of {name} are no JSON object; {_takes(schema)}"
    wrong = _lacks(given, schema) or _unknown(given, schema) or _unfit(given, schema)
    return f"{name} {wrong}; {_takes(schema)}" if wrong else None


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _takes(schema: Mapping[str, Any]) -> str:
    """it takes code (string), steps (integer, optional)"""
    needed = schema.get("required") or []
    words = [
        f"{name} ({_kind(inner)}{'' if name in needed else ', optional'})"
        for name, inner in _properties(schema).items()
    ]
    return f"it takes {', '.join(words) or 'nothing'}"


def _kinds(schema: Any) -> list[str]:
    found = schema.get("type") if isinstance(schema, Mapping) else None
    return [found] if isinstance(found, str) else list(found or [])


def _kind(schema: Any) -> str:
    return " or ".join(_kinds(schema)) or "anything"


def _lacks(given: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    missing = [name for name in schema.get("required") or [] if name not in given]
    return f"lacks {', '.join(map(repr, missing))}" if missing else None


def _unknown(given: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """Arguments that the schema does not name, where it names any and does not say that more are welcome."""
    more = schema.get("additionalProperties", False)
    extra = [] if more or not _properties(schema) else [name for name in given if name not in _properties(schema)]
    return f"takes no {', '.join(map(repr, extra))}" if extra else None


def _unfit(given: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """The first argument of another type, or outside of its list of values."""
    for name, value in given.items():
        inner = _properties(schema).get(name)
        kinds = [KINDS[kind] for kind in _kinds(inner) if kind in KINDS]
        if kinds and not any(fits(value) for fits in kinds):
            return f"has {name!r} = {json.dumps(value)[:80]}, expected {_kind(inner)}"
        allowed = inner.get("enum") if isinstance(inner, Mapping) else None
        if allowed and value not in allowed:
            return f"has {name!r} = {json.dumps(value)[:80]}, expected one of {json.dumps(allowed)}"
    return None
