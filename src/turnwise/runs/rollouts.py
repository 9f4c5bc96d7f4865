"""Trajectories to a Parquet file and back, one row each; what comes back equals what was saved.

Messages and task data are JSON (a tuple in them comes back as a list); turns are a nested column, see turns.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.errors import ConfigError, DataError
from turnwise.runs import disk, turns
from turnwise.types import EpisodeStop, Task, Trajectory, Turn

NUMBERS = pa.map_(pa.string(), pa.float64())


def save(
    path: Path, step: int, trajectories: Sequence[Trajectory], columns: Mapping[str, Sequence[Any]] | None = None
) -> None:
    """Write the trajectories of a step, whole or not at all; `columns` adds one value a trajectory under each name."""
    table = _table(step, trajectories)
    for name, values in (columns or {}).items():
        if name in table.column_names:
            raise DataError(f"found extra column {name!r}, which a rollout file already has; expected another name")
        if len(values) != len(trajectories):
            raise DataError(f"extra column {name!r} has {len(values)} values, expected {len(trajectories)}: one a row")
        table = table.append_column(name, pa.array(values))
    disk.replace(path, lambda p: pq.write_table(table, p, compression="zstd"))


def free(columns: Sequence[str]) -> None:
    """Refuse names of extra columns that a rollout file has already, before anything is played."""
    taken = [name for name in columns if name in _table(0, []).column_names]
    if taken:
        raise ConfigError(f"found {taken} in env.save_columns, which every rollout file has; expected other names")


def load(path: Path) -> list[Trajectory]:
    """The trajectories of a file, in the order they were saved."""
    table = pq.read_table(path).combine_chunks()
    rows = table.drop_columns(["turns"]).to_pylist()
    own = turns.unpack(table["turns"].combine_chunks())
    return [_trajectory(row, played) for row, played in zip(rows, own, strict=True)]


def _table(step: int, trajectories: Sequence[Trajectory]) -> pa.Table:
    for t in trajectories:
        if not -(2**63) <= t.seed < 2**63:
            raise DataError(f"trajectory {_label(t)} has seed {t.seed}, expected a signed 64-bit number")
    return pa.table(
        {
            "step": pa.array([step] * len(trajectories), pa.int64()),
            "env": pa.array([t.env for t in trajectories], pa.string()),
            "task_key": pa.array([t.task.key for t in trajectories], pa.string()),
            "task_data": pa.array([_json(t, t.task.data) for t in trajectories], pa.string()),
            "group": pa.array([t.group for t in trajectories], pa.int64()),
            "sibling": pa.array([t.sibling for t in trajectories], pa.int64()),
            "seed": pa.array([t.seed for t in trajectories], pa.int64()),
            "reward": pa.array([t.reward for t in trajectories], pa.float64()),
            "stop_reason": pa.array([t.stop_reason.value for t in trajectories], pa.string()),
            "error": pa.array([_storable(t.error) for t in trajectories], pa.string()),
            "metrics": pa.array([list(t.metrics.items()) for t in trajectories], NUMBERS),
            "seconds": pa.array([list(t.seconds.items()) for t in trajectories], NUMBERS),
            "messages": pa.array([_json(t, t.messages) for t in trajectories], pa.string()),
            "oracle": pa.array([_json(t, t.oracle) for t in trajectories], pa.string()),
            "turns": turns.pack([t.turns for t in trajectories]),
        }
    )


def _trajectory(row: dict[str, Any], turns: list[Turn]) -> Trajectory:
    return Trajectory(
        env=row["env"],
        task=Task(row["task_key"], json.loads(row["task_data"])),
        group=row["group"],
        sibling=row["sibling"],
        seed=row["seed"],
        turns=turns,
        messages=json.loads(row["messages"]),
        oracle=json.loads(row["oracle"]),
        reward=row["reward"],
        metrics=dict(row["metrics"]),
        stop_reason=EpisodeStop(row["stop_reason"]),
        error=row["error"],
        seconds=dict(row["seconds"]),
    )


def _json(trajectory: Trajectory, value: Any) -> str:
    """JSON in ASCII, which also carries the lone surrogates a model's tool call may hold."""
    try:
        return json.dumps(value, default=_array)
    except TypeError as error:
        raise DataError(
            f"trajectory {_label(trajectory)} holds what JSON has no word for ({error}), "
            "expected messages and task data of strings, numbers, lists and dicts"
        ) from None


def _array(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")


def _storable(text: str | None) -> str | None:
    """An error's text with what UTF-8 cannot hold spelled out."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _label(t: Trajectory) -> str:
    return f"{t.env} {t.task.key!r} (group {t.group}, sibling {t.sibling})"
