"""Wilson's interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.evals import wilson

counts = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("wins", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.277533),
        (9, 10, 0.595850, 0.982124),
        (10, 10, 0.722467, 1.0),
        (50, 100, 0.403832, 0.596168),
        (1, 2, 0.094531, 0.905469),
        (0, 0, 0.0, 1.0),
    ],
)
def test_it_has_the_published_values(wins: int, n: int, low: float, high: float) -> None:
    assert wilson(wins, n) == pytest.approx((low, high), abs=1e-6)


@given(counts)
def test_it_lies_in_0_1_and_holds_the_share(case: tuple[int, int]) -> None:
    wins, n = case
    low, high = wilson(wins, n)
    assert 0.0 <= low <= wins / n <= high <= 1.0 and low < high


@given(counts)
def test_failures_have_the_mirrored_interval(case: tuple[int, int]) -> None:
    wins, n = case
    low, high = wilson(n - wins, n)
    assert wilson(wins, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)


@given(counts)
def test_more_episodes_with_the_same_share_make_it_narrower(case: tuple[int, int]) -> None:
    wins, n = case
    few, many = wilson(wins, n), wilson(4 * wins, 4 * n)
    assert many[1] - many[0] < few[1] - few[0]
