"""When a session's cache is compacted, how, and the record of what was done, from which a trainer replays it.

Columns are what attention sees, in order: one a token, and where an event struck one a slot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from string import Formatter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from turnwise.types.arrays import Ids


@dataclass(frozen=True, slots=True)
class Budget:
    """Fires when the cache would pass `max_kv_tokens`, before a step or while decoding; as often as needed."""

    max_kv_tokens: int
    window: int | None = None
    """How many of the oldest columns after the protected ones go; None is all but the newest `protect_tokens`."""
    protect_tokens: int = 0
    max_events: int | None = None


@dataclass(frozen=True, slots=True)
class Turns:
    """Fires after a complete response when more than `protect_turns` turns stand; the budget does not, beside it."""

    protect_turns: int
    max_events: int | None = None


@dataclass(frozen=True, slots=True)
class Segments:
    """Fires after every `every`-th sampled token; the region is the budget's."""

    every: int
    window: int | None = None
    protect_tokens: int = 0
    max_events: int | None = None


Rule = Budget | Turns | Segments


def count(ratio: float, columns: int) -> int:
    """Slots for a region of so many columns, ceil(ratio * columns): .25 of 10 gives 3, .1 of 30 gives 3."""
    return min(columns, math.ceil(ratio * columns - 1e-9))


@dataclass(frozen=True, slots=True)
class Settings:
    """How a region is compacted; the defaults are what measured best."""

    method: Literal["match", "evict", "delete", "delete_reread"] = "match"
    ratio: float = 0.25
    """Slots for each column of the region, rounded up."""
    carry_ratio: float = 0.0
    """With `delete`, the fraction of the region, its newest, that stays."""
    carry_head: int = 0
    """With `delete_reread`, how many of the region's first tokens are read again."""
    carry_tail: int = 0
    """With `delete_reread`, how many of its last tokens are."""
    recent: int = 32
    """Newest columns that stay in any case, at most half of the slots."""
    ridge: float = 1e-2
    bias: bool = False
    """Also weigh the kept keys (`match`): worth trying where less than a tenth is kept."""
    select: Literal["top", "omp"] = "top"
    per_slot: int = 12
    """Reference queries for each slot, at least; more fit better and take longer, up to all the region has."""
    uniform: bool = True
    """As many slots for every head; else where the scores are, some of a head's slots being seen by no one."""
    source: str = "own"
    """Whose queries the fit is for; see kv/queries.py."""

    def slots(self, columns: int) -> int:
        """Slots for a region of so many columns."""
        ratios = {"delete": self.carry_ratio, "delete_reread": 0.0}
        return count(ratios.get(self.method, self.ratio), columns)


@dataclass(frozen=True, slots=True)
class Notice:
    """A user message that tells how many tokens are left; `template` may name {used}, {total} and {remaining}."""

    template: str = "{remaining} of {total} tokens are left."
    every: int = 0
    """Tokens without compaction between two notices; 0: one after each event."""

    @property
    def plain(self) -> bool:
        """Whether its names are those three and stand alone: {used:999999999} would be as many blanks."""
        try:
            parts = [part[1:] for part in Formatter().parse(self.template) if part[1] is not None]
        except ValueError:
            return False
        return all(name in ("used", "total", "remaining") and not form and not how for name, form, how in parts)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a session is opened with: the first `protect` tokens never go; without a rule only calls compact it."""

    rule: Rule | None = None
    settings: Settings = Settings()
    protect: int = 0
    notice: Notice | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One compaction of a session's cache: columns [start, end) gave way to a few slots, or to none.

    `at` is the first token (of prompt + completion) that was computed after it: its own log-probability belongs to the
    context before. `kept` [layers, key/value heads, slots] are the columns the slots were made from, counted from
    `start`; `queries` the tokens whose queries they were fitted to, turned to positions at + i mod `span`. After
    `delete_reread` nothing of the cache is left: `queries` are then the tokens read again, at positions 0, 1, ...
    Equal events leave equal caches; what triggered one, and what it cost, does not count.
    """

    at: int
    start: int
    end: int
    method: str
    kept: NDArray[np.int16]
    queries: Ids
    source: str = "own"
    span: int = 1
    ridge: float = 1e-2
    trigger: str = "budget"
    before: int = 0
    after: int = 0
    ms: float = 0.0
    residual: float = 0.0

    @property
    def slots(self) -> int:
        """How many columns are left of the region."""
        return int(self.kept.shape[-1])

    def _key(self) -> tuple[Any, ...]:
        return (self.at, self.start, self.end, self.method, self.source, self.span, self.ridge)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        same = self._key() == other._key() and np.array_equal(self.queries, other.queries)
        return same and np.array_equal(self.kept, other.kept)

    def __hash__(self) -> int:
        return hash((*self._key(), self.kept.shape))


@dataclass(frozen=True, slots=True)
class Strike:
    """An event in a tree or row: tokens [at, until) were computed after it, the first of them at row `at`.

    `event.at` and `event.queries` count along the path from the tree's root, which passes over other branches.
    """

    at: int
    until: int
    event: Event

    def moved(self, by: int) -> Strike:
        """The same strike in a row where its tree begins at `by`."""
        return Strike(self.at + by, self.until + by, self.event)
