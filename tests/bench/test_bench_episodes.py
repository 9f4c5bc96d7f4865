"""The benchmark of the turn loop plays what it says it plays."""

from __future__ import annotations

import pytest

from turnwise.bench import episodes
from turnwise.bench.talk import batch
from turnwise.config import load
from turnwise.errors import ConfigError


def test_a_step_plays_as_many_rounds_as_make_up_the_episodes():
    options = episodes.Options(episodes=5, turns=2, words=3)
    found = episodes._make(2, options)()
    assert found["episodes"] == 6.0 and found["turns_per_s"] == pytest.approx(2 * found["episodes_per_s"])


def test_episodes_are_as_long_however_many_are_under_way():
    play = batch(turns=3, words=5)
    assert play(1) == play(4) > batch(turns=2, words=5)(1)


def test_every_case_has_its_figures_with_their_spread():
    (case,) = episodes.run(episodes.Options(concurrent=[2], episodes=2, turns=2, repeats=1))
    assert case["name"] == "2 at once" and case["episodes"] == 2.0
    for figure in ("episodes_per_s", "turns_per_s", "ms_per_turn"):
        assert case[f"{figure}_min"] == case[figure] == case[f"{figure}_max"]


def test_at_least_one_number_of_concurrent_episodes_is_needed():
    with pytest.raises(ConfigError, match="concurrent"):
        load(["--concurrent", "[]"], episodes.Options)
