"""Trajectories on held-out tasks to the numbers a run reports about them."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.agents.figures import reported, success
from turnwise.evals.interval import wilson
from turnwise.types import Trajectory


def held_out(played: Sequence[Trajectory]) -> dict[str, float]:
    """Success with its interval, reward and length; an episode that failed counts as no success."""
    n = len(played)
    wins = sum(success(t) for t in played)
    low, high = wilson(wins, n)
    return {
        "eval/success": wins / max(n, 1),
        "eval/low": low,
        "eval/high": high,
        "eval/n": float(n),
        "eval/reward": sum(t.reward for t in played) / max(n, 1),
        "eval/turns": sum(len(t.turns) for t in played) / max(n, 1),
        "eval/errors": float(sum(t.error is not None for t in played)),
        **{f"eval/env/{name}": mean for name, mean in reported(played).items()},
    }
