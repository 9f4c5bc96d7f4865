"""What held-out episodes come to."""

from __future__ import annotations

from played import played, turn
from turnwise.evals import held_out, wilson
from turnwise.types import Trajectory


def episode(reward: float, turns: int, error: str | None = None, **metrics: float) -> Trajectory:
    found = played(*[turn([1], [2])] * turns, reward=reward, error=error)
    found.metrics.update(metrics)
    return found


def test_the_environment_s_own_success_counts_before_the_reward_and_failures_are_none() -> None:
    episodes = [episode(0.5, 3, success=1.0), episode(0.5, 1, success=0.0), episode(0.25, 2), episode(0.0, 4)]
    broken = episode(1.0, 0, error="gone", success=1.0)
    low, high = wilson(2, 5)
    assert held_out([*episodes, broken]) == {
        "eval/success": 0.4,
        "eval/low": low,
        "eval/high": high,
        "eval/n": 5.0,
        "eval/reward": 0.45,
        "eval/turns": 2.0,
        "eval/read_tokens": 2.0,
        "eval/sampled_tokens": 2.0,
        "eval/errors": 1.0,
        "eval/cache/peak_mean": 0.8,
        "eval/cache/peak_max": 1.0,
        "eval/compaction/events": 0.0,
    }
    assert held_out([broken], "eval/whole")["eval/whole/errors"] == 1.0


def test_what_an_environment_measures_is_a_mean_over_the_episodes_that_say_it() -> None:
    found = held_out([episode(1.0, 1, steps=3.0, long=1.0), episode(0.0, 1, steps=5.0), episode(0.0, 1)])
    assert (found["eval/env/steps"], found["eval/env/long"]) == (4.0, 1.0)
    assert "eval/env/success" not in found


def test_nothing_played_says_nothing() -> None:
    found = held_out([])
    assert (found["eval/success"], found["eval/low"], found["eval/high"], found["eval/n"]) == (0.0, 0.0, 1.0, 0.0)
