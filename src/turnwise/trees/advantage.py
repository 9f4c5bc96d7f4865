"""Rewards of a step's trajectories to advantages; statistics are over a group's trajectories, never over branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.config.run import AdvantageConfig
from turnwise.errors import DataError
from turnwise.types import Floats, Trajectory

Rewards = NDArray[np.float64]
SPREAD = 1e-9
"""Rewards closer than this are the same."""


def advantages(trajectories: Sequence[Trajectory], config: AdvantageConfig) -> Floats:
    """One number a trajectory; for `turn` a row a trajectory, one number a turn. NaN is no signal: the episode failed,
    or its group all got the same.

    grpo, one group with rewards 1, 0, 0, 1: .5, -.5, -.5, .5; with rewards 1, 1: NaN, NaN.
    """
    rewards = _turn_returns(trajectories, config.discount) if config.type == "turn" else _totals(trajectories)
    if config.type == "none":
        return rewards.astype(np.float32)
    groups = np.array([t.group for t in trajectories])
    found = np.full(rewards.shape, np.nan)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        for column in range(rewards.shape[1]) if rewards.ndim == 2 else (slice(None),):
            at = (members, column) if rewards.ndim == 2 else (members,)
            found[at] = _baselined(rewards[at], config, int(group))
    return found.astype(np.float32)


def _baselined(rewards: Rewards, config: AdvantageConfig, group: int) -> Rewards:
    """One group's advantages; those without a reward have none and no part in the statistics."""
    found = np.full(len(rewards), np.nan)
    there = ~np.isnan(rewards)
    if there.any() and rewards[there].std() > SPREAD:
        found[there] = BASELINES[config.type](rewards[there], group)
        if config.std:
            found[there] /= rewards[there].std()
    return found


def _centred(rewards: Rewards, group: int) -> Rewards:  # noqa: ARG001 - the shape all baselines share
    """1 0 0 1 is .5 -.5 -.5 .5."""
    centred: Rewards = rewards - rewards.mean()
    return centred


def _left_out(rewards: Rewards, group: int) -> Rewards:
    """Each against the mean of the others: 1 0 0 is 1 -.5 -.5."""
    return _centred(rewards, group) * (len(rewards) / (len(rewards) - 1))


def _relative(rewards: Rewards, group: int) -> Rewards:
    """Divided by the group's mean, so that a rare success counts more: 1 0 0 0 is 3 -1 -1 -1."""
    if rewards.min() < 0:
        raise DataError(
            f"found reward {rewards.min():g} in group {group} with advantage.type max_rl; expected rewards of 0 or "
            "more, since they are divided by their mean: shift them, or choose grpo or rloo"
        )
    return _centred(rewards, group) / float(rewards.mean())


BASELINES: dict[str, Callable[[Rewards, int], Rewards]] = {
    "grpo": _centred,
    "turn": _centred,
    "rloo": _left_out,
    "max_rl": _relative,
}


def _totals(trajectories: Sequence[Trajectory]) -> Rewards:
    return np.array([t.reward if t.error is None else np.nan for t in trajectories], np.float64)


def _turn_returns(trajectories: Sequence[Trajectory], discount: float) -> Rewards:
    """A row a trajectory: what each turn and those after it earned; NaN behind the last turn.

    Turn rewards 0, 0, 1 with discount 0.5: 0.25, 0.5, 1.
    """
    found = np.full((len(trajectories), max([len(t.turns) for t in trajectories], default=0)), np.nan)
    for row, trajectory in enumerate(trajectories):
        earned = 0.0
        for turn in reversed(range(len(trajectory.turns) if trajectory.error is None else 0)):
            earned = trajectory.turns[turn].reward + discount * earned
            found[row, turn] = earned
    return found
