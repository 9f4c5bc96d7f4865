"""Rewards of a step's trajectories to one advantage each; statistics are over trajectories, never over branches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.config.run import AdvantageConfig
from turnwise.types import Floats, Trajectory


def advantages(trajectories: Sequence[Trajectory], config: AdvantageConfig) -> Floats:
    """One number a trajectory, NaN where there is no signal: the episode failed, or its group all got the same.

    grpo, one group with rewards 1, 0, 0, 1: .5, -.5, -.5, .5; with rewards 1, 1: NaN, NaN.
    """
    rewards = np.array([t.reward if t.error is None else np.nan for t in trajectories], np.float64)
    if config.type == "none":
        return rewards.astype(np.float32)
    groups = np.array([t.group for t in trajectories])
    found = np.full(len(rewards), np.nan)
    for group in np.unique(groups):
        members = np.flatnonzero((groups == group) & ~np.isnan(rewards))
        spread = rewards[members].std() if len(members) else 0.0
        if spread > 1e-9:
            centred = rewards[members] - rewards[members].mean()
            found[members] = centred / spread if config.std else centred
    return found.astype(np.float32)
