"""What a model is told that shortens a text, and how many tokens it may write."""

from __future__ import annotations

from turnwise.condense.written import Request
from turnwise.types import Message

SYSTEM = "You shorten texts."
ASK = "Write what the text below says in at most {budget} tokens."
KEEP = " Keep names, numbers, and all that helps with this: {query}"
PLAIN = " Keep names and numbers."
SLACK = 1.5
"""Models count badly: how far over the budget one may go before it is cut."""
AGENT = "summary"
"""Who the turns belong to in which the policy writes summaries."""


def ask(request: Request) -> list[Message]:
    """The messages that ask for a shorter text, the budget and the query named."""
    keep = KEEP.format(query=request.query) if request.query else PLAIN
    said = f"{ASK.format(budget=request.budget)}{keep}\n\n{request.text}"
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": said}]


def room(budget: int, reasoning_tokens: int) -> int:
    """Most tokens of the whole reply: 100 with 50 for reasoning are 200."""
    return int(budget * SLACK) + reasoning_tokens
