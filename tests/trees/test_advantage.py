"""Rewards to advantages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from played import played, turn
from turnwise.config.run import AdvantageConfig
from turnwise.errors import DataError
from turnwise.rows import weigh
from turnwise.trees import advantages, merge

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


def test_rloo_takes_the_mean_of_the_others() -> None:
    assert found(AdvantageConfig(type="rloo"), [1, 0, 0], [4, 0]) == [1.0, -0.5, -0.5, 4.0, -4.0]


def test_max_rl_divides_by_the_group_s_mean() -> None:
    np.testing.assert_equal(
        found(AdvantageConfig(type="max_rl"), [1, 0, 0, 0], [1, 1]), [3.0, -1.0, -1.0, -1.0, NAN, NAN]
    )


def test_max_rl_refuses_rewards_below_zero() -> None:
    with pytest.raises(
        DataError, match=r"found reward -1 in group 1 with advantage\.type max_rl; expected rewards of 0"
    ):
        found(AdvantageConfig(type="max_rl"), [1, 0], [-1, 2])


def test_turn_takes_from_each_turn_s_return_what_siblings_got_at_that_turn() -> None:
    rewards = [(0.0, 0.0, 1.0), (0.0, 1.0), (0.0, 0.0), (5.0,)]
    episodes = [
        played(*(turn([1], [2], reward=r) for r in own), sibling=n, error="gone" if own == (5.0,) else None)
        for n, own in enumerate(rewards)
    ]
    advantage = advantages(episodes, AdvantageConfig(type="turn", discount=0.5))
    returns = np.array([[0.25, 0.5, 1.0], [0.5, 1.0, NAN], [0.0, 0.0, NAN]])
    expected = returns - [0.25, 0.5, NAN]  # only one sibling has a third turn, so nothing compares with it
    np.testing.assert_allclose(advantage, [*expected, [NAN] * 3])


def test_turn_may_divide_by_the_spread_at_each_turn() -> None:
    episodes = [played(turn([1], [2], reward=r), turn([1], [2]), sibling=n) for n, r in enumerate([4.0, 0.0])]
    np.testing.assert_equal(
        advantages(episodes, AdvantageConfig(type="turn", std=True)), np.float32([[1, NAN], [-1, NAN]])
    )


def test_each_turn_s_entries_get_its_own_advantage() -> None:
    episodes = [played(turn([1, 2], [3]), turn([1, 2, 3], [4 + n, 9]), sibling=n) for n in range(2)]
    (tree,) = merge(episodes)
    weighed, silent = weigh(tree, np.float32([[NAN, 0.5], [2.0, -0.5]]))
    e = weighed.entries
    assert silent == 1
    assert sorted(zip(e.trajectory.tolist(), e.turn.tolist(), e.advantage.tolist(), strict=True)) == [
        (0, 1, 0.5), (0, 1, 0.5), (1, 0, 2.0), (1, 1, -0.5), (1, 1, -0.5)
    ]  # fmt: skip


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
