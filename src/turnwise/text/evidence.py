"""Two texts of one conversation, old and new: is it only reasoning that is gone, only tool calls written otherwise?"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from turnwise.errors import RenderError
from turnwise.text.content import Said, calls_of

TAGS = (("<think>", "</think>"), ("<seed:think>", "</seed:think>"), ("[THINK]", "[/THINK]"))
"""How families open and close reasoning."""
BLANK = re.compile(r"\s*")
EMPTY = re.compile("|".join(rf"\s*{re.escape(a)}\s*{re.escape(b)}\s*" for a, b in TAGS))


def stripped(old: str, new: str, marks: Sequence[str] = ()) -> str | None:
    """The reasoning that `new` leaves out of `old`, None if they differ in more or less than that.

    "<think>why</think>\\n\\ngo" and "go, then" give "why": behind what is left, `new` may go on. Blanks beside
    reasoning may go with it, and an empty block may stand in its place. Reasoning that nothing closed has to be
    followed by one of `marks`, the ends of replies.
    """
    spans = list(_spans(marks).finditer(old))
    place, end, gone, open_end = 0, 0, list[str](), False
    for span in spans:
        if not new.startswith(old[end : span.start()], place):
            return None
        place, end = place + span.start() - end, span.end()
        if new.startswith(span[0], place):
            place += len(span[0])
            continue
        place = (EMPTY.match(new, place) or BLANK.match(new, place)).end()  # type: ignore[union-attr]
        gone.append(_inside(span))
        open_end = end == len(old) and not old.rstrip().endswith(tuple(close for _, close in TAGS))
    if not gone or not new.startswith(old[end:], place) or (open_end and not new.startswith(tuple(marks), place)):
        return None
    return "\n".join(gone)


def _spans(marks: Sequence[str]) -> re.Pattern[str]:
    """Reasoning with its tags and the blanks around it, up to an end of reply where nothing closes it."""
    ends = "|".join([*(rf"(?={re.escape(mark)})" for mark in marks if mark), r"\Z"])
    return re.compile("|".join(rf"\s*{re.escape(a)}(.*?)(?:{re.escape(b)}\s*|{ends})" for a, b in TAGS), re.DOTALL)


def _inside(span: re.Match[str]) -> str:
    return next(group for group in span.groups() if group is not None)


def said_by(messages: Sequence[Said]) -> set[str]:
    """The arguments of every tool call in a conversation, each written the one way."""
    found = set()
    for message in messages:
        try:
            found |= {_one_way(_read(arguments)) for _, arguments in calls_of(message)}
        except RenderError:
            continue  # a call without a name is not a call that could be written otherwise
    return found


def same_calls(text: str, arguments: set[str]) -> str:
    """The text with each of these calls' JSON written one way and the blanks around it left out.

    '<c> {"b": 2, "a": 1} </c>' and '<c>{"a":1,"b":2}</c>' become the same.
    """
    out, done, start = list[str](), 0, text.find("{")
    while start >= 0:
        value, end = _object(text, start)
        if value is not None and arguments & {_one_way(_read(v)) for v in (value, *_given(value))}:
            out += [text[done:start].rstrip(), _one_way(_opened(value))]
            done = BLANK.match(text, end).end()  # type: ignore[union-attr]
        start = text.find("{", max(done, start + 1))
    return "".join([*out, text[done:]])


def _object(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    """The JSON object that begins there, and where it ends."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return value, end


def _given(call: dict[str, Any]) -> list[Any]:
    """What a call's object holds as its arguments."""
    return [call[name] for name in ("arguments", "parameters") if name in call]


def _opened(call: dict[str, Any]) -> dict[str, Any]:
    """Arguments given as JSON text, as the object they are."""
    return {name: _read(v) if name in ("arguments", "parameters") else v for name, v in call.items()}


def _read(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _one_way(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
