"""When a session's cache is compacted: its state and a rule in, the columns to compact or None out.

A state counts columns that are written: the token sampled last is not among them, since its own event comes first.
What each rule returns is never empty and always frees something, so that asking again until None ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from turnwise.errors import EngineError
from turnwise.kv.fit import Region
from turnwise.types import Attribution, Budget, Rule, Segments, Settings, Turns

Protect = Literal["system", "first_user"] | int


@dataclass(frozen=True, slots=True)
class Held:
    """A cache: so many columns, of which the first `protected` never go.

    `turns` is where each turn begins that still stands (what it read, then what it wrote); earlier slots lie before the
    first of them. `adding` columns will be written next. `sampled` counts tokens, `events` what has struck so far.
    """

    columns: int
    protected: int = 0
    turns: tuple[int, ...] = ()
    adding: int = 0
    sampled: int = 0
    events: int = 0

    def after(self, region: Region, slots: int) -> Held:
        """The cache once `slots` columns stand where the region was; turns that began in it no longer stand.

        Turns at 2, 5, 9 of 12 columns, region (2, 6) to 1 slot: the turn at 9 is left, now at 6 of 9 columns.
        """
        start, end = region
        moved = (t if t < start else t - (end - start) + slots for t in self.turns if not start <= t < end)
        columns = self.columns - (end - start) + slots
        return replace(self, columns=columns, turns=tuple(moved), events=self.events + 1)


def budget(held: Held, rule: Budget, settings: Settings) -> Region | None:
    """100 columns of which 10 are protected, 5 to come, at most 100, window 40: (10, 50)."""
    if held.columns + held.adding <= rule.max_kv_tokens:
        return None
    return _allowed(held, _oldest(held, rule.window, rule.protect_tokens), rule, settings)


def turns(held: Held, rule: Turns, settings: Settings) -> Region | None:
    """Turns at 4, 20, 50 of 80 columns, 4 protected, one turn kept: (4, 50)."""
    if len(held.turns) <= rule.protect_turns:
        return None
    end = held.turns[len(held.turns) - rule.protect_turns] if rule.protect_turns else held.columns
    return _allowed(held, (held.protected, end), rule, settings)


def segments(held: Held, rule: Segments, settings: Settings) -> Region | None:
    """To be asked once after each sampled token: every 8 fires at 8, 16, 24."""
    if not held.sampled or held.sampled % rule.every:
        return None
    return _allowed(held, _oldest(held, rule.window, rule.protect_tokens), rule, settings)


def asked(held: Held, start: int, end: int) -> Region | None:
    """The region a call names, as given; an empty one is no event."""
    if not 0 <= start <= end <= held.columns:
        raise EngineError(
            f"found region [{start}, {end}) of a cache of {held.columns} columns; "
            f"expected 0 <= start <= end <= {held.columns}"
        )
    return (start, end) if start < end else None


def protected(protect: Protect, said: Attribution) -> int:
    """How many leading tokens never go: those up to the end of the system messages or of the first user message.

    Messages of tokens [0, 0, 0, 1, 1, 2], roles (system, user, assistant): 3 for "system", 5 for "first_user". Where
    there is no user message yet, the system messages count; a number is taken as it is.
    """
    if isinstance(protect, int):
        return min(protect, len(said.message))
    heads = next((i for i, role in enumerate(said.roles) if role != "system"), len(said.roles))
    if protect == "first_user" and "user" in said.roles:
        heads = said.roles.index("user") + 1
    ours = np.flatnonzero((said.message >= 0) & (said.message < heads))
    return int(ours[-1]) + 1 if len(ours) else 0


def _oldest(held: Held, window: int | None, protect_tokens: int) -> Region:
    """The oldest columns after the protected prefix, the newest spared in any case."""
    end = held.columns - protect_tokens
    return held.protected, end if window is None else min(end, held.protected + window)


def _allowed(held: Held, region: Region, rule: Rule, settings: Settings) -> Region | None:
    """The region, unless it frees nothing or events have been enough."""
    size = region[1] - region[0]
    if rule.max_events is not None and held.events >= rule.max_events:
        return None
    return region if size > 0 and settings.slots(size) < size else None
