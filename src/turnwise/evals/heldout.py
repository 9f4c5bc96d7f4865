"""Trajectories on held-out tasks to the numbers a run reports about them."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.agents.compaction import cache_figures
from turnwise.agents.diagnostics import read, replies
from turnwise.agents.figures import counted, reported, success
from turnwise.evals.interval import wilson
from turnwise.types import Trajectory


def held_out(played: Sequence[Trajectory], name: str = "eval") -> dict[str, float]:
    """Success with its interval, reward and length; an episode that failed counts as no success."""
    n = len(played)
    wins = sum(success(t) for t in played)
    low, high = wilson(wins, n)
    figures = {
        "success": wins / max(n, 1),
        "low": low,
        "high": high,
        "n": float(n),
        "reward": sum(t.reward for t in played) / max(n, 1),
        "turns": sum(len(replies(t)) for t in played) / max(n, 1),
        "read_tokens": sum(read(t) for t in played) / max(n, 1),
        "sampled_tokens": sum(t.sampled_tokens for t in played) / max(n, 1),
        "errors": float(sum(t.error is not None for t in played)),
        **counted(played),
        **{f"env/{said}": mean for said, mean in reported(played).items()},
        **{key: value for key, value in cache_figures(played).items() if not key.startswith("perf/")},
    }
    return {f"{name}/{key}": value for key, value in figures.items()}
