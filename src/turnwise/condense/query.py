"""What condensers are told to look for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.text.content import text_of
from turnwise.types import Message

LONGEST = 400
"""Characters of a query; of a longer first message the last line counts, where a question most often stands."""


def query_of(pattern: str, data: Mapping[str, Any], messages: Sequence[Message]) -> str:
    """What the pattern finds in the conversation; without one, the task's question, or else the first user message."""
    if pattern:
        said = (text_of(m) for m in messages if m.get("role") in ("system", "user"))
        found = next((match for match in (re.search(pattern, text) for text in said) if match), None)
        return "" if found is None else (found[1] if found.re.groups else found[0]) or ""
    if isinstance(data.get("question"), str):
        return str(data["question"])
    first = next((text_of(m) for m in messages if m.get("role") == "user"), "").strip()
    return first if len(first) <= LONGEST else first.splitlines()[-1][-LONGEST:]
