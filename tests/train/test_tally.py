"""Means over tokens, never means of means."""

from __future__ import annotations

import torch

from turnwise.train import Tally


def test_a_mean_is_over_the_tokens_of_all_rows() -> None:
    tally = Tally()
    tally.add(3, {"loss": torch.tensor(6.0), "rare": torch.tensor(1.0)})
    tally.add(1, {"loss": torch.tensor(0.0)})
    assert tally.metrics() == {"loss": 1.5, "rare": 1 / 3}


def test_a_sum_over_no_tokens_is_reported_as_it_is() -> None:
    tally = Tally()
    tally.add(0, {"loss": torch.tensor(0.0)})
    assert tally.metrics() == {"loss": 0.0}


def test_the_highest_value_stays_also_below_zero() -> None:
    tally = Tally()
    for value in (-3.0, -1.0, -2.0):
        tally.high("worst", value)
    assert tally.metrics() == {"worst": -1.0}


def test_nothing_seen_says_nothing() -> None:
    assert Tally().metrics() == {}
