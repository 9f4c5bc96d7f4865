"""Which columns attention has after events, from when to when: by whole values, and against a cache kept by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.errors import DataError
from turnwise.kv.columns import columns, struck, visible_until
from turnwise.types import Event, Strike

NONE = np.zeros(0, np.int32)


def event(at: int, start: int, end: int, slots: int, method: str = "match", queries: list[int] | None = None) -> Event:
    return Event(at, start, end, method, np.zeros((1, 1, slots), np.int16), np.array(queries or [], np.int32))


def line(tokens: int, *events: Event) -> tuple[np.ndarray, list[Strike]]:
    """One branch."""
    return np.full(tokens, tokens, np.int32), [Strike(e.at, tokens, e) for e in events]


def spans(ends: np.ndarray, strikes: list[Strike]) -> list[tuple[int, int, int]]:
    """Source, birth and death of the columns behind those of the tokens."""
    c = columns(ends, struck(ends, strikes))
    return list(zip(*(x[len(ends) :].tolist() for x in (c.source, c.birth, c.death)), strict=True))


def test_a_region_ends_where_the_event_strikes_and_its_slot_begins() -> None:
    ends, strikes = line(6, event(4, 1, 3, 1, queries=[1, 2]))
    assert visible_until(ends, strikes).tolist() == [6, 4, 4, 6, 6, 6]
    assert spans(ends, strikes) == [(6, 4, 6)]
    (one,) = struck(ends, strikes)
    assert (one.seen.tolist(), one.after.tolist(), one.asked.tolist(), one.wave) == ([0, 1, 2, 3], [0, 6, 3], [1, 2], 0)


def test_an_event_over_the_slots_of_another_waits_for_it_and_ends_them() -> None:
    ends, strikes = line(9, event(4, 1, 3, 2), event(7, 1, 4, 1))
    assert [s.seen.tolist() for s in struck(ends, strikes)] == [[0, 1, 2, 3], [0, 9, 10, 3, 4, 5, 6]]
    assert [s.wave for s in struck(ends, strikes)] == [0, 1]
    assert spans(ends, strikes) == [(9, 4, 7), (10, 4, 7), (11, 7, 9)]
    assert visible_until(ends, strikes).tolist() == [9, 4, 4, 7, 9, 9, 9, 9, 9]


def test_two_events_at_one_token_strike_one_after_the_other() -> None:
    ends, strikes = line(6, event(4, 0, 2, 1), event(4, 1, 3, 0))
    assert [s.seen.tolist() for s in struck(ends, strikes)] == [[0, 1, 2, 3], [6, 2, 3]]
    assert spans(ends, strikes) == [(6, 4, 6)]
    assert visible_until(ends, strikes).tolist() == [4, 4, 4, 4, 6, 6]


def test_a_branch_that_lost_nothing_sees_again_what_the_one_before_it_lost() -> None:
    ends = np.array([8, 8, 8, 6, 6, 6, 8, 8], np.int32)
    strikes = [Strike(4, 6, event(4, 1, 3, 1))]
    assert visible_until(ends, strikes).tolist() == [8, 4, 4, 6, 6, 6, 8, 8]
    assert spans(ends, strikes) == [(1, 6, 8), (2, 6, 8), (8, 4, 6)]


def test_siblings_that_lose_the_same_at_once_need_nothing_back() -> None:
    ends = np.array([7, 7, 7, 5, 5, 7, 7], np.int32)
    strikes = [Strike(3, 5, event(3, 0, 2, 1)), Strike(5, 7, event(3, 0, 2, 1))]
    assert spans(ends, strikes) == [(7, 3, 5), (8, 5, 7)]
    assert [s.wave for s in struck(ends, strikes)] == [0, 0]


def test_text_that_is_read_again_takes_no_column_away() -> None:
    ends, strikes = line(5, event(2, 0, 2, 0, "delete_reread", [0]))
    assert (struck(ends, strikes), visible_until(ends, strikes).tolist()) == ([], [5] * 5)


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (event(4, 1, 5, 1), r"columns \[1, 5\) of 4; expected a region of what the cache held"),
        (event(4, 3, 2, 0), r"columns \[3, 2\) of 4"),
        (Event(4, 1, 3, "match", np.full((1, 1, 1), 2, np.int16), NONE), "kept 2 of 2 columns; expected less"),
        (event(4, 1, 3, 1, queries=[4]), "fitted to token 4; expected tokens before it"),
    ],
)
def test_an_event_that_does_not_fit_what_stood_before_it_is_refused(bad: Event, found: str) -> None:
    with pytest.raises(DataError, match=found):
        struck(*line(6, bad))


@st.composite
def trees(draw: st.DrawFn) -> tuple[np.ndarray, list[Strike]]:
    """Branches of a few tokens with events anywhere, laid out depth first."""
    ends: list[int] = []
    strikes: list[Strike] = []

    def branch(depth: int, cache: int) -> None:
        first = len(ends)
        mine: list[tuple[int, Event]] = []
        for _ in range(draw(st.integers(1, 6))):
            if cache > 1 and draw(st.integers(0, 3)) == 0:
                start = draw(st.integers(0, cache - 1))
                end = draw(st.integers(start + 1, cache))
                slots = draw(st.integers(0, end - start))
                mine.append((len(ends), event(len(ends), start, end, slots)))
                cache += slots - (end - start)
            ends.append(-1)
            cache += 1
        tokens = len(ends)
        for _ in range(draw(st.integers(0, 2)) if depth < 3 else 0):
            branch(depth + 1, cache)
        ends[first:tokens] = [len(ends)] * (tokens - first)
        strikes.extend(Strike(at, len(ends), e) for at, e in mine)

    branch(0, 0)
    return np.array(ends, np.int32), strikes


@given(trees(), st.randoms())
@settings(deadline=None)
def test_every_token_sees_what_a_cache_of_its_own_branch_would_hold(tree: tuple, random) -> None:
    ends, strikes = tree
    random.shuffle(strikes)
    strikes.sort(key=lambda s: s.at)
    found = struck(ends, strikes)
    c = columns(ends, found)
    slots = {id(one.strike.event): one.slots for one in found}
    for token in range(len(ends)):
        cache: list[int] = []
        for j in range(token + 1):
            if ends[j] <= token:
                continue
            for s in [s for s in strikes if s.at == j]:
                first = slots[id(s.event)]
                cache[s.event.start : s.event.end] = range(first, first + s.event.slots)
            cache.append(j)
        seen = c.source[(c.birth <= token) & (token < c.death)].tolist()
        assert sorted(seen) == sorted(cache)
