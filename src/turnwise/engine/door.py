"""What a request may ask for, before anything is held or read."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.engine import sample
from turnwise.engine.session import LocalSession
from turnwise.engine.trie import trie
from turnwise.errors import EngineError, TooLong
from turnwise.kv.columns import REREAD
from turnwise.types import Budget, Sampling


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
