"""Summaries that the policy wrote, as turns of the trajectory that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnwise.types import Break, BreakKind, Turn, shared


def kept(written: Sequence[Turn], earlier: Sequence[Turn]) -> list[Turn]:
    """Each as a conversation of its own beside what stands; a summary that siblings share is a turn of each of them."""
    turns = [*earlier]
    for turn in written:
        turns.append(replace(turn, prefix=_beside(turn, turns), metrics={}))
    return turns[len(earlier) :]


def _beside(turn: Turn, earlier: Sequence[Turn]) -> Break | None:
    """It continues nothing that anybody said before; None where nothing was said."""
    if not earlier:
        return None
    last = len(earlier) - 1
    return Break(BreakKind.OTHER_AGENT, last, shared(earlier[last].ids, turn.prompt_ids))
