"""What a request may ask for, before anything is held or read."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.engine import sample
from turnwise.engine.session import LocalSession
from turnwise.engine.trie import trie
from turnwise.errors import EngineError, TooLong
from turnwise.kv.columns import REREAD
from turnwise.kv.queries import SOURCES
from turnwise.types import Budget, Compaction, Sampling, Settings

LEAST = {
    "protect": 0,
    "max_kv_tokens": 1,
    "window": 1,
    "every": 1,
    "protect_turns": 0,
    "protect_tokens": 0,
    "max_events": 0,
    "carry_head": 0,
    "carry_tail": 0,
    "recent": 0,
    "per_slot": 1,
}
"""The smallest numbers that rules and settings can be carried out with."""


def known(ids: Sequence[int], vocab: int) -> tuple[int, ...]:
    """Refuse a token the model does not have: it would fail the whole batch."""
    found = tuple(int(i) for i in ids)
    if found and not (min(found) >= 0 and max(found) < vocab):
        raise EngineError(f"found token ids {min(found)} to {max(found)}; expected 0 to {vocab - 1}")
    return found


def check(sampling: Sampling, vocab: int) -> None:
    """Refuse what cannot be sampled from."""
    sample.check(sampling, vocab)
    if sampling.choices:
        trie(sampling.choices)


def compactable(asked: Compaction) -> None:
    """Refuse a rule or a notice that could not be carried out: in the middle of a batch it would fail everyone."""
    _least(asked)
    _least(asked.rule)
    settings(asked.settings)
    if asked.notice is not None and not (asked.notice.plain and asked.notice.every >= 0):
        raise EngineError(
            f"found notice {asked.notice.template[:80]!r}, every {asked.notice.every}; expected a text that names only "
            "{used}, {total} and {remaining}, every 0 tokens or more"
        )


def settings(how: Settings) -> None:
    """The same for how a region is compacted."""
    _least(how)
    if not (0.0 < how.ratio <= 1.0 and 0.0 <= how.carry_ratio < 1.0):
        found = f"ratio {how.ratio} and carry_ratio {how.carry_ratio}"
        raise EngineError(f"found {found}; expected above 0 and at most 1, and at least 0 and below 1")
    if not 0.0 < how.ridge < float("inf"):
        raise EngineError(f"found ridge {how.ridge}; expected a number above 0")
    if how.source not in SOURCES:
        raise EngineError(f"found source {how.source[:80]!r}; expected one of {', '.join(SOURCES)}")


def _least(thing: object) -> None:
    for name, least in LEAST.items():
        found = getattr(thing, name, None)
        if found is not None and found < least:
            raise EngineError(f"found {name} {found} in {type(thing).__name__.lower()}; expected at least {least}")


def limit(session: LocalSession, tokens: int, most: int, context: int) -> int:
    """How many tokens may be sampled after so many, at most `most`."""
    if tokens < 1 or most < 1:
        raise EngineError(f"found {tokens} tokens to read and max_tokens {most}; expected at least 1")
    positions, compaction = tokens - session.shift, session.compaction
    if positions >= context:
        raise TooLong(f"found {positions} tokens to read; expected fewer than the model's {context}")
    rule = compaction.rule if compaction else None
    again = compaction is not None and compaction.settings.method == REREAD
    if again and isinstance(rule, Budget) and rule.max_events is None and rule.max_kv_tokens < context:
        return most  # positions begin anew before they reach the context's end
    return min(most, context - positions)
