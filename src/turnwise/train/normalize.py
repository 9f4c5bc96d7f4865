"""What the echo's loss is a mean over, as weights of its tokens; the trainer divides by their number all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.rows import Row

Lengths = tuple[int, int, int]
"""Of one rollout: its tokens, its echo tokens, its sampled tokens; before anything was cut."""


def normalize(rows: Sequence[Row], lengths: Mapping[int, Lengths], normalization: str) -> None:
    """Weigh the echo of an update: `global` leaves alphas as they are, the others are means over rollouts.

    `echo_tokens`, rollouts of 1 and 3 echo tokens, alpha 1: each token's alpha / S is 1 and 1/3 1/3 1/3, of which half
    counts; the trainer divides by 4, so weights are 2 and 2/3 2/3 2/3.
    """
    total = sum(len(r.echo) for r in rows)
    if normalization == "global" or not total:
        return
    share = total / len(lengths)
    factors = {number: share * _factor(normalization, *sizes) for number, sizes in lengths.items()}
    for row in rows:
        e = row.echo
        e.weight[:] = e.alpha * np.array([factors[n] for n in e.trajectory.tolist()], np.float32)


def _factor(normalization: str, tokens: int, echoed: int, sampled: int) -> float:
    """What alpha is multiplied by in a rollout; one without echo tokens has nothing to multiply."""
    by = {"all_tokens": (1, tokens), "echo_tokens": (1, echoed), "ratio": (sampled, echoed), "none": (1, 1)}
    over, under = by[normalization]
    return over / under if under else 0.0
