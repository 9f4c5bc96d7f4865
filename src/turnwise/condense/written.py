"""What a condenser is asked for, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwise.types import Turn


@dataclass(frozen=True, slots=True)
class Request:
    """A piece of text, the tokens it may take in the end (of the condensing model), and what matters about it."""

    text: str
    budget: int
    query: str
    seed: int


@dataclass(frozen=True, slots=True)
class Written:
    """The shorter text, with the turn in which the policy sampled it, if it did; None with the reason where there is
    none. `why` may also stand beside a text: `cut` is one that ran into its limit."""

    text: str | None
    turn: Turn | None = None
    why: str = ""


class Condenser(Protocol):
    """One way to shorten text. What fails by nature is a Written with its reason, never an exception."""

    def starts(self, text: str) -> Sequence[int]:
        """Where each token of the model that condenses begins in a text."""
        ...

    async def shorten(self, request: Request) -> Written: ...
