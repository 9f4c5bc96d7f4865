"""Conversations, one JSON line each, in OpenAI shape: {"messages": [...], "tools": [...], "metadata": {...}}.

Metadata may hold `id` (unique) and `task` (conversations of one task stay on one side of the split).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnwise.envs.find import Environment
from turnwise.errors import ConfigError, DataError, RenderError
from turnwise.text.content import calls_of, text_of
from turnwise.types import Task

ROLES = ("system", "developer", "user", "assistant", "tool")


class Conversations:
    """Files of conversations as a source of tasks; nobody plays them."""

    @staticmethod
    def tasks(files: Sequence[str]) -> list[Task]:
        """One task a line, in order."""
        found = [_task(file, number, record) for file in files for number, record in read(Path(file))]
        if not found:
            raise DataError(f"found no conversation in {', '.join(files)}; expected at least one line")
        return found


def source(files: Sequence[str]) -> Environment:
    """The files as an environment's tasks, so that they are split and drawn as all tasks are."""
    return Environment("conversations", Conversations, {"files": list(files)})


def read(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    """Each line's number and what it holds, checked."""
    if not path.is_file():
        raise ConfigError(f"found no file {path} (data); expected conversations, one JSON object a line")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _read(path, number, line)


def _read(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}, line {number}: found {line[:60]!r}, which is not JSON ({error})") from None
    wrong = mistake(record)
    if wrong:
        raise DataError(f"{path}, line {number}: {wrong}")
    found: dict[str, Any] = record
    return found


def _task(file: str, number: int, record: Mapping[str, Any]) -> Task:
    known = record.get("metadata") or {}
    key = str(known.get("id") or f"{file}:{number}")
    data = {"messages": record["messages"], "tools": record.get("tools") or None}
    # Named anew, since the tasks that were played are those that the same hash left on one side already.
    return Task(key, data, split=f"conversation/{known.get('task') or key}")


def mistake(record: Any) -> str | None:
    """What is wrong with a conversation, None if nothing is."""
    if not isinstance(record, Mapping) or not isinstance(record.get("messages"), list) or not record["messages"]:
        return "found no messages; expected an object with a list of messages"
    messages, tools = record["messages"], record.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(t, Mapping) and _name(t) for t in tools):
        return f"found tools {str(tools)[:60]!r}; expected a list of functions with names"
    asked: set[str] = set()
    for n, message in enumerate(messages):
        wrong = _wrong(message, asked)
        if wrong:
            return f"message {n}: {wrong}"
        asked |= {str(call["id"]) for call in message.get("tool_calls") or [] if call.get("id")}
    roles = [message["role"] for message in messages]
    if any(a == b == "assistant" for a, b in pairwise(["assistant", *roles])):
        return "found an assistant that answers nobody; expected another message before each of its own"
    if roles[-1] != "assistant":
        return f"found a last message by {messages[-1]['role']}; expected the assistant's"
    return None


def _name(tool: Mapping[str, Any]) -> Any:
    function = tool.get("function", tool)
    return isinstance(function, Mapping) and function.get("name")


def _wrong(message: Any, asked: set[str]) -> str | None:
    """What is wrong with one message; `asked` are the ids of the calls before it."""
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in ROLES:
        return f"found role {role!r}; expected one of {', '.join(ROLES)}"
    try:
        said, calls = text_of(message), calls_of(message)
    except (RenderError, AttributeError, TypeError) as error:
        return str(error)
    if message.get("failed_calls"):
        return "found tool calls that could not be read; expected ones with a name and arguments"
    if role == "assistant" and not (said or calls or message.get("reasoning_content")):
        return "found an assistant who says nothing; expected content or tool_calls"
    for name, arguments in calls:
        try:
            whole = isinstance(json.loads(arguments), dict)
        except ValueError:
            whole = False
        if not whole:
            return f"found arguments {arguments[:60]!r} of {name}; expected a JSON object"
    answers = message.get("tool_call_id")
    if role == "tool" and answers is not None and str(answers) not in asked:
        return f"found an answer to call {answers!r}, which nobody made; expected one of {sorted(asked)}"
    return None
