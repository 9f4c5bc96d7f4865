"""Sums and maxima over the tokens of many rows, so that every mean is over tokens and never a mean of means."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

LOSSES = ("loss/rl", "loss/echo")
"""Means over different tokens, whose sum is the loss."""


@dataclass(slots=True)
class Tally:
    """Adds up what rows report; each mean is over as many tokens as its sum was taken over."""

    sums: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    highs: dict[str, float] = field(default_factory=dict)
    logs: set[str] = field(default_factory=set)

    def add(self, tokens: int, sums: Mapping[str, Tensor]) -> None:
        for name, value in sums.items():
            self.sums[name] += float(value)  # type: ignore[assignment]
            self.counts[name] += tokens

    def add_logs(self, tokens: int, sums: Mapping[str, Tensor]) -> None:
        """Sums of logarithms, whose mean is reported as its exponential: a geometric mean over tokens."""
        self.add(tokens, sums)
        self.logs |= sums.keys()

    def high(self, name: str, value: float) -> None:
        self.highs[name] = max(self.highs.get(name, value), value)

    def metrics(self) -> dict[str, float]:
        means = {name: total / max(self.counts[name], 1) for name, total in self.sums.items()}
        shown = {name: math.exp(x) if name in self.logs else x for name, x in means.items()}
        losses = [means[name] for name in LOSSES if name in means]
        return shown | ({"loss/total": sum(losses)} if losses else {}) | self.highs
