"""From numbers to places in a picture: scales, round tick values and short labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] to [start, end] pixels; `log` counts in powers of ten."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def linear(values: list[float], start: float, end: float, bounds: Sequence[float] = ()) -> Scale:
    """A scale that holds all values and bounds, with a little air around them but none beyond a bound.

    Values 2 to 10 with bound 0 span [0, 10.6]; with bounds 0 and 10, [0, 10].
    """
    low, high = min([*values, *bounds]), max([*values, *bounds])
    air = (high - low) * 0.06 or abs(low) / 2 or 1.0
    below = 0.0 if low in bounds and high > low else air
    above = 0.0 if high in bounds and high > low else air
    return Scale(low - below, high + above, start, end)


def logarithmic(values: list[float], start: float, end: float) -> Scale:
    """A scale from the power of ten below the smallest value to the one above the largest."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Scale(10.0**low, 10.0 ** max(high, low + 1), start, end, log=True)


def ticks(scale: Scale, about: int = 4) -> list[float]:
    """Round values inside the scale: [0, 0.2, 0.4, 0.6] for 0 to 0.7."""
    if scale.log:
        return _decades(scale, about)
    step = _round_step((scale.high - scale.low) / about)
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def steps(scale: Scale, about: int = 5) -> list[float]:
    """Ticks on whole steps only."""
    return [t for t in ticks(scale, about) if t == int(t)]


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is not under `rough`: 0.2 for 0.17."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * k for k in (1, 2, 2.5, 5, 10) if power * k >= rough * (1 - 1e-9))


def _decades(scale: Scale, about: int) -> list[float]:
    low, high = round(math.log10(scale.low)), round(math.log10(scale.high))
    stride = max(1, math.ceil((high - low) / about))
    return [10.0**k for k in range(low, high + 1, stride)]


def short(value: float) -> str:
    """A number in few characters: 0.125, 1.2k, 3.4M, 2.5e-6."""
    size = abs(value)
    if size == 0:
        return "0"
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= max(unit, 1e4):
            return f"{_digits(value / unit)}{letter}"
    if size < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return _digits(value)


def _digits(value: float) -> str:
    """Three significant digits and no trailing zeros, whole numbers as they are."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
