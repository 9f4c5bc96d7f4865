"""A turn to the stretches of it that one cache computed. Most turns are one; after an event that throws the cache away
and reads some text again, what follows is a sequence of its own, which begins with that text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.errors import DataError
from turnwise.kv.columns import REREAD
from turnwise.types import Event, Ids, Turn


@dataclass(frozen=True, slots=True)
class Leg:
    """Tokens that were computed one after the other at positions 0, 1, ..., with the events that struck among them.

    The first `again` of them were read again; the next one is the turn's token `first`, and all after it are the turn's
    too. Events count along `ids`. Where text was read again, token `first` was drawn before: it is only context.
    """

    ids: Ids
    events: tuple[Event, ...]
    first: int = 0
    again: int = 0


def legs(turn: Turn, events: tuple[Event, ...], name: str) -> Iterator[Leg]:
    """A turn of 6 tokens, everything thrown away at 3 but token 0, which is read again: 0 1 2 3 and 0 3 4 5.

    Token 3 ends the first leg, whose token 2 foretold it, and goes on in the second.
    """
    ids = turn.ids
    _check(events, len(ids), name)
    cuts = [n for n, e in enumerate(events) if e.method == REREAD]
    if not cuts:
        yield Leg(ids, events)
        return
    yield Leg(ids[: events[cuts[0]].at + 1], events[: cuts[0]])
    for number, cut in enumerate(cuts):
        begin, until = events[cut], len(events)
        end = len(ids)
        if number + 1 < len(cuts):
            until = cuts[number + 1]
            end = events[until].at + 1
        if begin.at + 1 < end:
            yield _again(ids[:end], begin, events[cut:until])


def _again(ids: Ids, begin: Event, events: Sequence[Event]) -> Leg:
    """The leg behind an event that read some tokens again."""
    read = begin.queries
    place = np.full(len(ids), -1, np.int32)  # of the turn's tokens in the leg
    place[begin.at :] = np.arange(len(read), len(read) + len(ids) - begin.at)
    place[read] = np.arange(len(read))
    rebased = [replace(e, at=int(place[e.at]), queries=place[e.queries]) for e in events]
    return Leg(np.concatenate([ids[read], ids[begin.at :]]), tuple(rebased), begin.at, len(read))


def settled(turns: Sequence[Turn]) -> list[tuple[Event, ...]]:
    """The events of each turn, with those that struck at its last token once it was over.

    They change nothing about it, but so it stays on the path of the turn that goes on from it.
    """
    found = [t.events for t in turns]
    if not any(found):
        return found
    for n, turn in enumerate(turns):
        ids = turn.ids
        for later in turns[n + 1 :]:
            if _continues(later, ids, turn.events):
                found[n] = tuple(
                    e for e in later.events if e.at < len(ids) and (e in turn.events or e.method != REREAD)
                )
                break
    return found


def _continues(later: Turn, ids: Ids, events: tuple[Event, ...]) -> bool:
    """Whether a turn goes on from these tokens and events, struck by nothing else but at the last of them."""
    if later.events[: len(events)] != events or not np.array_equal(later.prompt_ids[: len(ids)], ids):
        return False
    return all(e.at == len(ids) - 1 for e in later.events[len(events) :] if e.at < len(ids))


def _check(events: tuple[Event, ...], tokens: int, name: str) -> None:
    """Events in order, each at a token that stands behind another."""
    last = 1
    for e in events:
        if not last <= e.at < tokens or e.kept.ndim != 3:
            raise DataError(
                f"{name}: found an event at token {e.at} of {tokens} that kept {e.kept.shape}; expected events in the "
                f"order of their tokens, {last} to {tokens - 1}, and kept columns [layers, heads, slots]"
            )
        if len(e.queries) and not 0 <= int(e.queries.min()) <= int(e.queries.max()) < e.at:
            raise DataError(
                f"{name}: found an event at token {e.at} with queries of token {e.queries.max()}; expected earlier ones"
            )
        last = e.at
