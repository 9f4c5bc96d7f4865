"""Names to columns of the rollouts table: one value an episode, from its environment, its task or its metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from turnwise.types import Trajectory

PLAIN = (str, bool, int, float)


def columns(trajectories: Sequence[Trajectory], names: Sequence[str]) -> dict[str, list[Any]]:
    """Each name's values, None where an episode has none; the last `extra` wins over task data, that over metrics.

    Values of one plain type stay as they are, whole numbers among others become such; all else is JSON text.
    """
    return {name: _alike([_find(t, name) for t in trajectories]) for name in names}


def absent(found: dict[str, list[Any]]) -> list[str]:
    """The columns in which nothing stands."""
    return [name for name, values in found.items() if all(value is None for value in values)]


def _find(trajectory: Trajectory, name: str) -> Any:
    for source in (trajectory.extra, trajectory.task.data, trajectory.metrics):
        if name in source:
            return source[name]
    return None


def _alike(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and kinds:
        number = float if float in kinds else int
        return [None if value is None else number(value) for value in values]
    if len(kinds) <= 1 and kinds <= set(PLAIN):
        return values
    return [None if value is None else json.dumps(value, default=str) for value in values]
