"""Carries out what rules ask for, between two forward passes: a few events at a time, so that others go on decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwise.engine import ask, door
from turnwise.engine.ask import Due
from turnwise.engine.compact import Done, Rotary, alike, carry_out
from turnwise.engine.pool import Pool
from turnwise.engine.request import Request
from turnwise.errors import EngineError
from turnwise.types import Budget, Compaction, Settings

COLUMNS_A_TOKEN = 8
"""Columns of a region that cost about as much to compact as one token to read."""

Write = Callable[[str], Sequence[int]]
"""A notice's text to the tokens that tell it: the reply's end, a user's message, the beginning of another reply."""

QUERIED = ("match", "evict")
"""Methods that choose by reference queries."""


@dataclass(slots=True)
class Strikes:
    """What is needed to compact the caches of a pool."""

    pool: Pool
    rotary: Rotary | None
    every: int
    counts: Counter[str]
    write: Write | None = None

    def check(self, compaction: Compaction) -> None:
        """Refuse what cannot be done, before a session is held."""
        door.compactable(compaction)
        self.check_settings(compaction.settings)
        if compaction.notice is not None and self.write is None:
            raise EngineError(
                "found a notice, and this engine cannot write one; give LocalEngine `write_notice`, text to tokens"
            )
        rule = compaction.rule
        if isinstance(rule, Budget) and rule.max_kv_tokens <= compaction.protect:
            raise EngineError(
                f"found max_kv_tokens {rule.max_kv_tokens} of which {compaction.protect} are protected; expected more"
            )

    def check_settings(self, settings: Settings) -> None:
        door.settings(settings)
        if settings.method in QUERIED and settings.source == "repeat":
            raise EngineError("found source repeat, which takes a second reading; expected own, suffix or context")
        if settings.method in QUERIED and settings.source == "own" and self.rotary is None:
            raise EngineError("found a model without rotary positions, whose queries cannot be turned; expected delete")

    def captures(self, settings: Settings) -> bool:
        """Whether queries have to be stored."""
        return settings.method in QUERIED and settings.source != "keys"

    def due(self, running: Sequence[Request], columns: int) -> list[list[Due]]:
        """Groups that are computed together, about `columns` in all, the first at any rate."""
        found: list[list[Due]] = []
        due = [strike for request in running if (strike := ask.due(request))]
        for group in alike(due):
            for strike in group:
                size = strike.region[1] - strike.region[0]
                if found and columns < size:
                    return found
                columns -= size
                if found and found[-1][0] is group[0]:
                    found[-1].append(strike)
                else:
                    found.append([strike])
        return found

    def carry_out(self, group: Sequence[Due]) -> list[Done]:
        """Compute; safe in a thread, since it only writes to the caches of these sessions."""
        rotary = self.rotary
        assert rotary is not None or group[0].settings.method not in QUERIED
        return carry_out(self.pool, group, rotary, self.every)

    def commit(self, one: Done) -> bool:
        """Hand the new cache to its session; False where that is gone, or where an old event was repeated."""
        session = one.strike.session
        session.striking = False
        if session.cache is None or session.cache.extent is not one.cache.extent:
            return False
        session.cache = one.cache
        if one.strike.forced is not None:
            self.counts["events_repeated"] += 1
            return False
        session.events.append(one.event)
        session.settings.append(one.strike.settings)
        ask.answered(session, one.strike)
        self.counts["events"] += 1
        self.counts["columns_freed"] += one.event.before - one.event.after
        return True

    def notice(self, request: Request, version: int, after_event: bool) -> None:
        """Tell how many tokens are left, if the session wants it told now and there is room for it."""
        compaction = request.session.compaction
        notice = compaction.notice if compaction else None
        if notice is None or self.write is None or not request.ids or request.ending or request.node:
            return
        if not after_event if not notice.every else request.quiet < notice.every:
            return
        used, total = len(request.ids), request.max_tokens
        ids = self.write(notice.template.format(used=used, total=total, remaining=total - used))
        if used + len(ids) < total:
            request.inject(ids, version)
            self.counts["tokens_injected"] += len(ids)
