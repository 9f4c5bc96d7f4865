"""Trajectories of a step to the numbers a run reports about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from turnwise.agents.compaction import cache_figures
from turnwise.agents.diagnostics import calls, chars, read, replies, tokens
from turnwise.types import Trajectory


def success(trajectory: Trajectory) -> float:
    """What the environment calls success, or a positive reward where it does not say; a failed episode is none."""
    if trajectory.error is not None:
        return 0.0
    return float(trajectory.metrics.get("success", trajectory.reward > 0.0))


OURS = {"success", "retries", "close_failed"}
"""Metrics of a trajectory that have a figure of their own."""
COUNTED = ("calls/", "condense/")
"""How those begin that the agent counts, not the environment."""


def reported(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Everything else that environments measured: each a mean over the episodes that say it, by name."""
    values: dict[str, list[float]] = {}
    for name, value in (item for t in trajectories for item in t.metrics.items()):
        if name not in OURS and not name.startswith(COUNTED):
            values.setdefault(name, []).append(value)
    return {name: sum(said) / len(said) for name, said in sorted(values.items())}


def counted(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """What agents counted themselves: means over all episodes, of which some may have had nothing to count."""
    found: Counter[str] = Counter()
    for trajectory in trajectories:
        found.update({name: n for name, n in trajectory.metrics.items() if name.startswith(COUNTED)})
    return {name: total / len(trajectories) for name, total in sorted(found.items())}


def figures(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Means over trajectories, and how many episodes ended for which reason."""
    rewards = np.array([t.reward for t in trajectories])
    stops = Counter(t.stop_reason for t in trajectories)
    return {
        "reward/mean": float(rewards.mean()),
        "reward/std": float(rewards.std()),
        "success/mean": float(np.mean([success(t) for t in trajectories])),
        "episode/turns": float(np.mean([len(replies(t)) for t in trajectories])),
        "episode/tokens": float(np.mean([_length(t) for t in trajectories])),
        "episode/read_tokens": float(np.mean([read(t) for t in trajectories])),
        "episode/sampled_tokens": float(np.mean([t.sampled_tokens for t in trajectories])),
        "episode/retries": sum(t.metrics.get("retries", 0.0) for t in trajectories),
        "episode/close_failed": sum(t.metrics.get("close_failed", 0.0) for t in trajectories),
        **cache_figures(trajectories),
        **_seconds(trajectories),
        **{f"tokens/{role}": n / len(trajectories) for role, n in tokens(trajectories).items()},
        **{f"chars/{role}": n / len(trajectories) for role, n in chars(trajectories).items()},
        **counted(trajectories),
        **calls(trajectories),
        **{f"env/{name}": mean for name, mean in reported(trajectories).items()},
        **{f"stop/{reason.value}": float(n) for reason, n in sorted(stops.items())},
    }


def _seconds(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean seconds an episode waited for each of model, environment and condensation."""
    spent: Counter[str] = Counter()
    for trajectory in trajectories:
        spent.update(trajectory.seconds)
    return {f"time/episode_{where}_s": seconds / len(trajectories) for where, seconds in sorted(spent.items())}


def _length(trajectory: Trajectory) -> int:
    """Tokens the conversation held at its end."""
    last = next(iter(replies(trajectory)[-1:]), None)
    return len(last.prompt_ids) + len(last.completion_ids) if last else 0
