"""What a loss is a mean over, as weights of entries; the trainer divides by the number of entries all the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.rows import Row


def reduce(rows: Sequence[Row], reduction: str) -> None:
    """Weigh the entries of an update so that every sequence, or trace, counts alike; `token` leaves the weights at 1.

    Replies of 1 and 3 tokens under `sequence`: 4 entries, 2 sequences, weights 2 and 2/3 2/3 2/3.
    """
    if reduction == "token" or not rows:
        return
    trajectory = np.concatenate([r.entries.trajectory for r in rows]).astype(np.int64)
    turn = np.concatenate([r.entries.turn for r in rows])
    unit = trajectory if reduction == "trace" else trajectory << 32 | turn
    _, which, lengths = np.unique(unit, return_inverse=True, return_counts=True)
    weights = (len(unit) / max(len(lengths), 1) / lengths)[which]
    ends = np.cumsum([len(r.entries) for r in rows])[:-1]
    for row, weight in zip(rows, np.split(weights, ends), strict=True):
        row.entries.weight[:] = weight
