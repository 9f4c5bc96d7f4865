"""When compaction fires, rule by rule of the table, and laws of any cache."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.errors import EngineError
from turnwise.kv.trigger import Held, asked, budget, protected, segments, turns
from turnwise.types import Attribution, Budget, Segments, Settings, Turns, count

SAID = Attribution(
    np.array([0, 0, -1, 1, 1, 2, 3, -1], np.int32),
    np.ones(8, np.int8),
    ("system", "user", "assistant", "user"),
    (None,) * 4,
)


HALF = Settings(ratio=0.5)


def test_a_budget_fires_only_when_the_cache_would_pass_it():
    held, rule = Held(columns=90, protected=10, adding=10), Budget(max_kv_tokens=100, window=40)
    assert (budget(held, rule, HALF), budget(Held(91, 10, adding=10), rule, HALF)) == (None, (10, 50))


def test_without_a_window_all_goes_but_the_newest():
    assert budget(Held(100, 10, adding=1), Budget(100, protect_tokens=30), HALF) == (10, 70)


def test_a_window_does_not_reach_into_the_newest():
    assert budget(Held(100, 10, adding=1), Budget(100, window=80, protect_tokens=30), HALF) == (10, 70)


def test_events_end_at_their_number():
    held, rule = Held(100, 10, adding=1, events=2), Budget(100, max_events=2)
    assert budget(held, rule, HALF) is None


@pytest.mark.parametrize(("columns", "ratio"), [(10, 0.25), (11, 0.25), (60, 1.0)])
def test_a_region_that_frees_nothing_is_no_event(columns, ratio):
    assert budget(Held(columns, protected=10, adding=9), Budget(5), Settings(ratio=ratio)) is None


def test_turns_fire_when_more_than_the_protected_stand_and_reach_back_over_earlier_slots():
    held = Held(columns=80, protected=4, turns=(8, 20, 50))
    assert [turns(held, Turns(n), HALF) for n in (0, 1, 2, 3)] == [(4, 80), (4, 50), (4, 20), None]


def test_only_the_prefix_before_the_turns_that_stay_is_no_event():
    assert turns(Held(columns=80, protected=20, turns=(8, 20)), Turns(1), HALF) is None


def test_segments_fire_at_every_so_manyth_sampled_token():
    rule = Segments(every=8, window=20)
    fired = [n for n in range(30) if segments(Held(40, 4, sampled=n), rule, HALF)]
    assert (fired, segments(Held(40, 4, sampled=8), rule, HALF)) == ([8, 16, 24], (4, 24))


def test_what_is_asked_for_is_taken_as_given():
    assert (asked(Held(10, 5), 2, 7), asked(Held(10), 3, 3)) == ((2, 7), None)
    with pytest.raises(EngineError, match=r"found region \[4, 12\) of a cache of 10 columns; expected"):
        asked(Held(10), 4, 12)


def test_after_an_event_what_follows_moves_up_and_turns_inside_no_longer_stand():
    assert Held(12, 2, (2, 5, 9), sampled=3).after((2, 6), 1) == Held(9, 2, (6,), sampled=3, events=1)


@given(st.integers(0, 20), st.lists(st.integers(1, 30), max_size=6), st.data())
@settings(deadline=None)
def test_columns_counted_are_those_of_a_list(protected_columns, sizes, data):
    """The same on a list of cells, each the number of its turn, or a slot."""
    cells: list[object] = [-1] * protected_columns + [i for i, size in enumerate(sizes) for _ in range(size)]
    starts = tuple(protected_columns + sum(sizes[:i]) for i in range(len(sizes)))
    held = Held(len(cells), protected_columns, starts)
    while (region := turns(held, Turns(data.draw(st.integers(0, 3))), HALF)) is not None:
        start, end = region
        slots = count(0.5, end - start)
        cells[start:end] = ["slot"] * slots
        held = held.after(region, slots)
        assert held.columns == len(cells)
        assert [cells[t] for t in held.turns] == sorted({c for c in cells if isinstance(c, int) and c >= 0})


@given(st.integers(0, 300), st.integers(0, 20), st.integers(0, 40), st.integers(1, 50), st.integers(0, 50))
@settings(deadline=None)
def test_asking_until_none_ends_and_never_takes_what_is_protected(columns, prefix, tail, window, limit):
    held, rule = Held(columns + prefix, prefix), Budget(limit, window, tail)
    while (region := budget(held, rule, HALF)) is not None:
        assert prefix == region[0] < region[1] <= held.columns - tail
        held = held.after(region, count(0.5, region[1] - region[0]))
    assert held.columns <= columns + prefix


@pytest.mark.parametrize(("protect", "tokens"), [("system", 2), ("first_user", 5), (3, 3), (99, 8), (0, 0)])
def test_the_protected_prefix_ends_with_its_message(protect, tokens):
    assert protected(protect, SAID) == tokens


def test_without_a_user_the_system_messages_are_protected_and_without_those_nothing():
    alone = Attribution(np.array([0, 0, 1], np.int32), np.ones(3, np.int8), ("system", "assistant"), (None, None))
    assert (protected("first_user", alone), protected("system", alone)) == (2, 2)
    none = Attribution(np.array([0, 1], np.int32), np.ones(2, np.int8), ("user", "assistant"), (None, None))
    assert protected("system", none) == 0
