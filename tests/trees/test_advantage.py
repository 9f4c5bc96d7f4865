"""Rewards to advantages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from played import played, turn
from turnwise.config.run import AdvantageConfig
from turnwise.trees import advantages

GRPO, SCALED, PLAIN = AdvantageConfig(), AdvantageConfig(std=True), AdvantageConfig(type="none")
NAN = float("nan")


def found(config: AdvantageConfig, *groups: Sequence[float | None]) -> list[float]:
    """Advantages of groups of rewards; a reward of None is a failed episode."""
    episodes = [
        played(turn([1], [2]), group=g, sibling=s, reward=9.0 if r is None else r, error="gone" if r is None else None)
        for g, rewards in enumerate(groups)
        for s, r in enumerate(rewards)
    ]
    return [float(a) for a in advantages(episodes, config)]


def test_grpo_takes_the_group_s_mean_from_each_reward() -> None:
    assert found(GRPO, [1, 0, 0, 1], [4, 0, 2, 2]) == [0.5, -0.5, -0.5, 0.5, 2.0, -2.0, 0.0, 0.0]


def test_std_divides_by_the_group_s_own_spread() -> None:
    assert found(SCALED, [1, 0, 0, 1], [4, 0]) == [1.0, -1.0, -1.0, 1.0, 1.0, -1.0]


@pytest.mark.parametrize("config", [GRPO, SCALED])
def test_a_group_that_all_got_the_same_has_no_signal(config: AdvantageConfig) -> None:
    np.testing.assert_equal(found(config, [1, 1], [0.1, 0.1, 0.1], [3], [1, 0]), [NAN] * 6 + found(config, [1, 0]))


def test_a_failed_episode_has_no_advantage_and_no_part_in_the_mean() -> None:
    np.testing.assert_equal(found(GRPO, [1, None, 0], [None, 2], [None, None]), [0.5, NAN, -0.5] + [NAN] * 4)


def test_none_hands_the_reward_on_and_leaves_out_failures() -> None:
    np.testing.assert_equal(found(PLAIN, [1, 1, None], [0, -2]), [1.0, 1.0, NAN, 0.0, -2.0])


def test_groups_may_come_interleaved() -> None:
    episodes = [played(turn([1], [2]), group=g, reward=r) for g, r in [(5, 1.0), (2, 3.0), (5, 0.0), (2, 0.0)]]
    assert advantages(episodes, GRPO).tolist() == [0.5, 1.5, -0.5, -1.5]


def test_no_trajectories_have_no_advantages() -> None:
    assert advantages([], GRPO).tolist() == advantages([], PLAIN).tolist() == []


@given(st.lists(st.lists(st.integers(-5, 5), min_size=2, max_size=6), min_size=1, max_size=4), st.booleans())
def test_a_group_with_spread_sums_to_zero_and_keeps_the_order_of_its_rewards(
    groups: list[list[int]], std: bool
) -> None:
    values = iter(found(AdvantageConfig(std=std), *groups))
    for rewards in groups:
        mine = [next(values) for _ in rewards]
        if len(set(rewards)) == 1:
            assert np.isnan(mine).all()
            continue
        assert abs(sum(mine)) < 1e-5
        assert np.argsort(mine, kind="stable").tolist() == np.argsort(rewards, kind="stable").tolist()
        assert not std or abs(np.std(mine) - 1) < 1e-5
