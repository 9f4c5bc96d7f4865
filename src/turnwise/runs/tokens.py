"""Every token of a step with all its numbers, a row a token: to a Parquet file and back.

Tokens stand by trajectory, then by branch. What does not exist for a token (a ratio of context, say) is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from turnwise.rows.seen import Seen
from turnwise.runs import checkpoint, columns, disk
from turnwise.runs.columns import Columns
from turnwise.runs.folder import RunFolder
from turnwise.types import Trajectory

Text = Callable[[int], str]
"""The text of one token."""


def save(path: Path, step: int, trajectories: Sequence[Trajectory], seen: Sequence[Seen], text: Text) -> None:
    """Write the tokens of a step, whole or not at all; `seen` are its rows as they were first read in training."""
    path.parent.mkdir(exist_ok=True)
    made = table(step, dict(enumerate(trajectories)), seen, text)
    disk.replace(path, lambda p: pq.write_table(made, p, compression="zstd"))


def load(path: Path, trajectory: int) -> pa.Table:
    """The tokens of one trajectory."""
    return pq.read_table(path, filters=[("trajectory", "=", trajectory)]).combine_chunks()


def table(
    step: int, trajectories: Mapping[int, Trajectory], seen: Sequence[Seen] = (), text: Text | None = None
) -> pa.Table:
    """The tokens of trajectories, by their number in the step; without `text` there are only ids."""
    parts = [_tokens(number, t, seen) for number, t in trajectories.items() if t.turns]
    if not parts:
        return pa.table({"step": pa.array([], pa.int32()), "trajectory": pa.array([], pa.int32())})
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    arrays = {name: _array(values) for name, values in found.items()}
    texts = pa.nulls(len(found["id"]), pa.string()) if text is None else _texts(found["id"], text)
    made = pa.table({"step": pa.array(np.full(len(found["id"]), step, np.int32)), **arrays})
    return made.add_column(made.column_names.index("id") + 1, "text", texts)


def _tokens(number: int, trajectory: Trajectory, seen: Sequence[Seen]) -> Columns:
    own, paths = columns.columns(trajectory)
    columns.trained(own, paths, number, seen)
    size = len(own["id"])
    agents = np.array([t.agent for t in trajectory.turns], object)
    about: Columns = {
        "trajectory": np.full(size, number, np.int32),
        "group": np.full(size, trajectory.group, np.int32),
        "sibling": np.full(size, trajectory.sibling, np.int32),
        "agent": agents[own["turn"]],
    }
    return about | own


def _array(values: np.ndarray) -> pa.Array:
    """NaN, -1 and None are null."""
    if values.dtype == object:
        return pa.array(values, pa.string())
    return pa.array(values, mask=np.isnan(values) if values.dtype.kind == "f" else values < 0)


def _texts(ids: np.ndarray, text: Text) -> pa.Array:
    """Each distinct token decoded once."""
    distinct, which = np.unique(ids, return_inverse=True)
    said = pa.array([text(int(i)) for i in distinct], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), said)


def reader(folder: RunFolder) -> Text | None:
    """How a run's newest checkpoint spells a token; None where it has no tokenizer that can be read by itself."""
    newest = checkpoint.newest(folder)
    if newest is None or not (newest[1] / "tokenizer.json").is_file():
        return None
    tokenizer = Tokenizer.from_file(str(newest[1] / "tokenizer.json"))
    return lambda token: str(tokenizer.decode([token], skip_special_tokens=False))
