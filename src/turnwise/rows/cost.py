"""What a row costs to compute: a * tokens + b * attended pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Ids

WIDTH = 576
"""The hidden size a cost is for when none is given: SmolLM2-135M's."""


class Seen(Protocol):
    """A tree or a row."""

    @property
    def visible_until(self) -> Ids: ...


@dataclass(frozen=True, slots=True)
class Cost:
    """What a token and a pair (a token and one it can see) cost; only their proportion matters."""

    token: float = 1.0
    pair: float = 1 / (6 * WIDTH)

    @staticmethod
    def of(width: int) -> Cost:
        """A layer multiplies about 12 x width^2 weights a token, and 2 x width numbers a pair."""
        return Cost(pair=1 / (6 * width))

    def __call__(self, seen: Seen) -> float:
        return self.token * len(seen.visible_until) + self.pair * pairs(seen.visible_until)

    def each(self, things: Sequence[Seen]) -> NDArray[np.float64]:
        return np.array([self(thing) for thing in things], np.float64)


COST = Cost()


def pairs(visible_until: Ids) -> int:
    """How often a token sees a token, itself included: [4, 2, 4, 4] is 4 + 1 + 2 + 1 = 8."""
    return int((visible_until - np.arange(len(visible_until), dtype=np.int64)).sum())
