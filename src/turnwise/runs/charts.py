"""Small pictures of a run as inline SVG text: lines over faint points, and stacked areas.

Colours come from the page's CSS (classes c0, c1, ...), so one picture serves light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TypeVar

from turnwise.runs import axes
from turnwise.runs.axes import Scale, short

WIDTH, HEIGHT = 400, 236
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 10, 40
MOST_POINTS = 300
Points = list[tuple[float, float]]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers over steps. A `marked` series is drawn as large dots with `whiskers` (low, high), others as lines."""

    name: str
    points: Points
    whiskers: list[tuple[float, float]] = field(default_factory=list)
    marked: bool = False


def smooth(values: Sequence[float], window: float) -> list[float]:
    """A moving average of about `window` values to both sides, so that it does not lag behind a rise.

    With window 3 each step away counts half as much: [0, 0, 1] gives [0.071, 0.167, 0.786].
    """
    ahead = _trailing(values, window)
    behind = _trailing(values[::-1], window)[::-1]
    return [(a + b) / 2 for a, b in zip(ahead, behind, strict=True)]


def _trailing(values: Sequence[float], window: float) -> list[float]:
    """The average of what came so far, fading with age, without leaning on the first value."""
    keep = 1 - 2 / (window + 1)
    total = weight = 0.0
    out = []
    for value in values:
        total, weight = keep * total + (1 - keep) * value, keep * weight + (1 - keep)
        out.append(total / weight)
    return out


def window(count: int) -> int:
    """Steps a line averages over: about a fifteenth of the run, 1 (no smoothing) for short runs."""
    return 1 if count < 12 else max(3, round(count / 15))


def lines(name: str, series: Sequence[Series], *, log: bool = False, bounds: Sequence[float] = ()) -> str:
    """A line chart; points a log scale cannot show (zero or less) are left out."""
    series = [_above_zero(s) for s in series] if log else list(series)
    points = [p for s in series for p in s.points]
    if not points:
        return _empty("nothing above zero to show on a log scale")
    heights = [y for _, y in points] + [y for s in series for w in s.whiskers for y in w]
    y = axes.logarithmic(heights, HEIGHT - BOTTOM, TOP) if log else axes.linear(heights, HEIGHT - BOTTOM, TOP, bounds)
    x = _across([at for at, _ in points])
    drawn = [_marks(s, x, y, i) if s.marked else _line(s, x, y, i) for i, s in enumerate(series)]
    return _svg(_summary(name, series), _frame(x, y) + "".join(drawn))


def areas(name: str, series: Sequence[Series]) -> str:
    """Series stacked on each other; all share the same steps."""
    at = [x for x, _ in series[0].points]
    tops = [[0.0] * len(at)]
    for s in series:
        tops.append([below + value for below, (_, value) in zip(tops[-1], s.points, strict=True)])
    y = axes.linear(tops[-1], HEIGHT - BOTTOM, TOP, (0.0,))
    x = _across(at)
    drawn = []
    for i, s in enumerate(series):
        upper = list(zip(at, tops[i + 1], strict=True))
        lower = list(zip(at, tops[i], strict=True))[::-1]
        drawn.append(f'<path class="area c{i}" d="{_path(upper + lower, x, y)}Z"/>')
        heard = _thin(list(zip(upper, s.points, strict=True)))
        drawn += [_dot("hit", x(a), y(b), i, s.name, a, v) for (a, b), (_, v) in heard]
    return _svg(_summary(name, series), _frame(x, y) + "".join(drawn))


def _above_zero(series: Series) -> Series:
    return Series(series.name, [(x, y) for x, y in series.points if y > 0])


def _across(steps: list[float]) -> Scale:
    low, high = min(steps), max(steps)
    return Scale(low, high if high > low else low + 1, LEFT + 6, WIDTH - RIGHT)


def _line(series: Series, x: Scale, y: Scale, colour: int) -> str:
    """Faint points and the smoothed line over them; on a log scale the logarithm is averaged."""
    values = [math.log10(v) if y.log else v for _, v in series.points]
    average = smooth(values, window(len(values)))
    line = [(at, 10**v if y.log else v) for (at, _), v in zip(series.points, average, strict=True)]
    faint = [_dot("pt", x(at), y(v), colour, series.name, at, v) for at, v in _thin(series.points)]
    return f'{"".join(faint)}<path class="line c{colour}" d="{_path(_thin(line), x, y)}"/>'


def _marks(series: Series, x: Scale, y: Scale, colour: int) -> str:
    whiskers = [
        f'<path class="whisker c{colour}" d="M{x(at):.1f} {y(low):.1f}V{y(high):.1f}"/>'
        for (at, _), (low, high) in zip(series.points, series.whiskers, strict=False)
    ]
    dots = [_dot("mark", x(at), y(v), colour, series.name, at, v) for at, v in series.points]
    path = f'<path class="dash c{colour}" d="{_path(series.points, x, y)}"/>'
    return path + "".join(whiskers) + "".join(dots)


def _dot(kind: str, x: float, y: float, colour: int, name: str, step: float, value: float) -> str:
    """A point that the page's script can find and read out."""
    radius = {"pt": 2, "mark": 4, "hit": 3}[kind]
    say = escape(f"{name} {short(value)}", quote=True)
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
    return f'<circle class="{kind} c{colour}" {place} data-step="{step:g}" data-say="{say}"/>'


def _thin(items: list[Item]) -> list[Item]:
    """At most about MOST_POINTS of them, the last always among them, so that a long run stays a small page."""
    stride = math.ceil(len(items) / MOST_POINTS)
    return items if stride <= 1 else [*items[:-1:stride], items[-1]]


def _path(points: Points, x: Scale, y: Scale) -> str:
    return "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)


def _frame(x: Scale, y: Scale) -> str:
    """Grid lines with their values, the steps below, and the word under the axis."""
    across = [
        f'<path class="grid" d="M{LEFT} {y(t):.1f}H{WIDTH - RIGHT}"/>'
        f'<text class="tick" text-anchor="end" x="{LEFT - 6}" y="{y(t) + 4:.1f}">{short(t)}</text>'
        for t in axes.ticks(y)
    ]
    down = [
        f'<path class="axis" d="M{x(t):.1f} {HEIGHT - BOTTOM}v4"/>'
        f'<text class="tick" text-anchor="middle" x="{x(t):.1f}" y="{HEIGHT - BOTTOM + 16}">{short(t)}</text>'
        for t in axes.steps(x)
    ]
    axis = f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    word = f'<text class="tick" text-anchor="middle" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}">step</text>'
    return "".join([*across, axis, *down, word, '<path class="cursor" d=""/>'])


def _svg(label: str, content: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label, quote=True)}">{content}</svg>'


def _empty(why: str) -> str:
    return _svg(why, f'<text class="tick" text-anchor="middle" x="{WIDTH / 2}" y="{HEIGHT / 2}">{escape(why)}</text>')


def _summary(name: str, series: Sequence[Series]) -> str:
    """What the picture says, for those who cannot see it."""
    parts = [f"{s.name} from {short(s.points[0][1])} to {short(s.points[-1][1])}" for s in series if s.points]
    return f"{name}: {', '.join(parts)}"
