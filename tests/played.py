"""Turns and trajectories made by hand, for tests of what comes after an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from turnwise.types import EpisodeStop, Support, Task, Trajectory, Turn, TurnStop


def turn(prompt: Sequence[int], said: Sequence[int], logprobs: Sequence[float] | None = None, **more: Any) -> Turn:
    """Reads `prompt`, writes `said`; log-probabilities -1 and version 0 unless told otherwise."""
    versions = more.pop("versions", [0] * len(said))
    return Turn(
        np.array(prompt, np.int32),
        np.array(said, np.int32),
        np.array([-1.0] * len(said) if logprobs is None else logprobs, np.float32),
        np.array(versions, np.int32),
        TurnStop.STOP,
        **more,
    )


def played(*turns: Turn, group: int = 0, sibling: int = 0, reward: float = 0.0, error: str | None = None) -> Trajectory:
    """An episode of these turns; one with an error failed in its environment."""
    stop = EpisodeStop.DONE if error is None else EpisodeStop.ENV_ERROR
    return Trajectory(
        "toy", Task(f"toy/{group}"), group, sibling, 0, list(turns), reward=reward, stop_reason=stop, error=error
    )


def tight(*slices: Sequence[int]) -> Support:
    """One slice of allowed ids a token; an empty one allows any."""
    return Support.stack([np.array(s, np.int32) for s in slices])
