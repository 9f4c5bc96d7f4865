"""What attention sees of a row that events struck: one key column a token and one a slot, each from a birth to a death.

A column is visible to token i when birth <= i < death. Where branches of a tree disagree on what was deleted, a column
that one of them lost comes back for the next: a copy, born where that one begins. Shapes: N tokens of a row, C columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.errors import DataError
from turnwise.types import Ids, Strike

REREAD = "delete_reread"
"""After it nothing of the cache is left: what follows stands in a tree of its own, and loses nothing there."""


@dataclass(frozen=True, slots=True)
class Struck:
    """One strike of a row: the columns that stood before it and the rows whose queries it was fitted to.

    `seen` numbers tokens by their row and slots from N on; its own slots are `slots` and up. Strikes of one `wave` do
    not wait for each other: each has so many strikes above it.
    """

    strike: Strike
    seen: Ids
    asked: Ids
    slots: int
    wave: int

    @property
    def after(self) -> Ids:
        """The columns that stand behind it: seen 0 1 2 3, region (1, 3), one slot 9 gives 0 9 3."""
        event = self.strike.event
        made = np.arange(self.slots, self.slots + event.slots)
        return np.concatenate([self.seen[: event.start], made, self.seen[event.end :]]).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Columns:
    """The first N are the tokens themselves; `source` says which token or slot stands in each column. Arrays [C]."""

    source: Ids
    birth: Ids
    death: Ids


def struck(ends: Ids, strikes: Sequence[Strike]) -> list[Struck]:
    """Every strike of a row in the order of their tokens; `ends` holds where the branch of each token ends.

    Six tokens in one branch, struck at 4 in region (1, 3) with one slot: seen 0 1 2 3, after 0 6 3.
    """
    found: list[Struck] = []
    open_: list[Struck] = []
    slots = len(ends)
    for strike in sorted(strikes, key=lambda s: s.at):
        if strike.event.method == REREAD:
            continue
        while open_ and open_[-1].strike.until <= strike.at:
            open_.pop()
        path = np.flatnonzero(ends[: strike.at] > strike.at).astype(np.int32)
        before = open_[-1] if open_ else None
        seen = path if before is None else np.concatenate([before.after, path[path >= before.strike.at]])
        _check(strike, len(seen), len(path))
        found.append(Struck(strike, seen, path[strike.event.queries], slots, before.wave + 1 if before else 0))
        open_.append(found[-1])
        slots += strike.event.slots
    return found


def _check(strike: Strike, columns: int, tokens: int) -> None:
    """An event that does not fit what stood before it would silently be another one."""
    event = strike.event
    size = event.end - event.start
    if not 0 <= event.start <= event.end <= columns:
        raise DataError(
            f"found an event at token {event.at} on columns [{event.start}, {event.end}) of {columns}; expected a "
            "region of what the cache held then"
        )
    if event.slots and not 0 <= int(event.kept.min()) <= int(event.kept.max()) < size:
        raise DataError(
            f"found an event at token {event.at} that kept {event.kept.max()} of {size} columns; expected less"
        )
    if len(event.queries) and not 0 <= int(event.queries.min()) <= int(event.queries.max()) < tokens:
        raise DataError(
            f"found an event at token {event.at} fitted to token {event.queries.max()}; expected tokens before it"
        )


def columns(ends: Ids, found: Sequence[Struck]) -> Columns:
    """Births and deaths of all columns, of those that come back for another branch too.

    Six tokens in one branch, struck at 4 in region (1, 3) with one slot: deaths 6 4 4 6 6 6, and the slot from 4 to 6.
    """
    tokens = len(ends)
    source = [np.arange(tokens, dtype=np.int32)]
    birth, death, limit = source[0].copy(), ends.astype(np.int32), ends.astype(np.int32)
    current = source[0].copy()  # the column in which a token or slot stands now
    for one in found:
        at, until, event = one.strike.at, one.strike.until, one.strike.event
        gone = one.seen[event.start : event.end]
        death[current[gone]] = at
        back = gone[limit[gone] > until]
        made = np.arange(one.slots, one.slots + event.slots, dtype=np.int32)
        born = len(birth)
        source += [back, made]
        birth = np.concatenate([birth, np.full(len(back), until), np.full(len(made), at)]).astype(np.int32)
        death = np.concatenate([death, limit[back], np.full(len(made), until)]).astype(np.int32)
        limit = np.concatenate([limit, np.full(len(made), until)]).astype(np.int32)
        current[back] = np.arange(born, born + len(back))
        current = np.concatenate([current, np.arange(born + len(back), len(birth))]).astype(np.int32)
    every = np.concatenate(source)
    kept = death > birth
    kept[:tokens] = True
    return Columns(every[kept], birth[kept], death[kept])


def visible_until(ends: Ids, strikes: Sequence[Strike]) -> NDArray[np.int32]:
    """Where each token is first lost: to an event, or where its branch ends."""
    return columns(ends, struck(ends, strikes)).death[: len(ends)] if strikes else ends
