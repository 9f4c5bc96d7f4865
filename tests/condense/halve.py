"""Condensers for tests, and histories over bytes as tokens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from turnwise.condense import History, Shared
from turnwise.condense.plan import starts_of
from turnwise.condense.written import Condenser, Request, Written
from turnwise.config.condense import CondenseConfig
from turnwise.testing import byte_tokenizer
from turnwise.types import Message

BYTES = starts_of(byte_tokenizer())


class Halve:
    """Keeps the first half of a text, and remembers what it was asked."""

    def __init__(self, times: float = 0.5, why: str = "") -> None:
        self.times = times
        self.why = why
        self.asked: list[Request] = []

    def starts(self, text: str) -> Sequence[int]:
        return BYTES(text)

    async def shorten(self, request: Request) -> Written:
        self.asked.append(request)
        await asyncio.sleep(0)
        kept = (
            request.text * int(self.times) if self.times >= 1 else request.text[: int(len(request.text) * self.times)]
        )
        return Written(None if self.why == "failed" else kept, why=self.why)


def history(condenser: Condenser | None = None, shared: Shared | None = None, **config: Any) -> History:
    """One that condenses whatever is eligible, each line a piece unless told otherwise."""
    chunk = {"tokens": 1000, "boundary": "(?m)^", **config.pop("chunk", {})}
    settings = {"max_context_tokens": 1, "min_tokens": 4, "protect_turns": 0, "chunk": chunk, **config}
    used = CondenseConfig.model_validate(settings)
    return History(used, condenser or Halve(), BYTES, shared or Shared(), lambda text: len(text))


def rewrite(held: History, messages: Sequence[Message], query: str = "") -> list[Message] | None:
    return asyncio.run(held.rewrite(messages, query)).messages


def reasons(held: History) -> Counter[str]:
    """What was counted, without what is nothing."""
    return +held.counts


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def tool(text: str) -> Message:
    return {"role": "tool", "content": text, "tool_call_id": "call_1"}
