"""Conversations for tests, as lines of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "door"}'}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


PLAIN = {"messages": [{"role": "system", "content": "You walk."}, user("a"), said("left"), user("b"), said("right")]}
TOOLED = {
    "messages": [
        user("a"),
        said("", tool_calls=[CALL]),
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        said("ok"),
    ],
    "tools": [TOOL],
}


def write(path: Path, records: list[Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def sums(path: Path, number: int = 24) -> str:
    """A file of small questions, two conversations to a task."""
    records = [
        {
            "messages": [user(f"{n} + 1?"), said(str(n + 1)), user("and one more?"), said(str(n + 2))],
            "metadata": {"id": f"{n}#{k}", "task": f"sum/{n}"},
        }
        for n in range(number // 2)
        for k in (0, 1)
    ]
    return write(path, records)
