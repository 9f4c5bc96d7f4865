"""Trajectories on held-out tasks to the numbers a run reports about them."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.agents.diagnostics import read, replies
from turnwise.agents.figures import counted, reported, success
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
        "eval/turns": sum(len(replies(t)) for t in played) / max(n, 1),
        "eval/read_tokens": sum(read(t) for t in played) / max(n, 1),
        "eval/sampled_tokens": sum(t.sampled_tokens for t in played) / max(n, 1),
        "eval/errors": float(sum(t.error is not None for t in played)),
        **{f"eval/{name}": mean for name, mean in counted(played).items()},
        **{f"eval/env/{name}": mean for name, mean in reported(played).items()},
    }
