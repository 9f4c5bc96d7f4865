"""`python -m turnwise.bench.figures FILE FOLDER`: the figures of `turnwise bench compaction --json FILE` as two SVGs.

compaction-quality.svg is what is lost against how much is kept; compaction-cache.svg how large a cache is over time,
worked out by the triggers themselves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from turnwise.kv.fit import Region
from turnwise.kv.trigger import Held, budget, turns
from turnwise.runs import axes
from turnwise.runs.axes import Scale, short
from turnwise.types import Budget, Settings, Turns, count

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 300, 56, 120, 14, 44
COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626", "#64748b")
STYLE = "text{font:12px system-ui,sans-serif;fill:#64748b}.grid{stroke:#94a3b8;stroke-opacity:.25}path{fill:none}"
QUALITY = ("match/own", "match_3/own", "match_3/suffix", "evict/own", "newest/-", "match_3/keys")
"""Methods and sources that are drawn where the file has them, best first."""
Line = tuple[str, list[tuple[float, float]]]
"""A name, and points from left to right."""


def quality(cases: Sequence[Mapping[str, Any]]) -> list[Line]:
    """KL at each ratio, of single events."""
    found = []
    for name in QUALITY:
        own = [case for case in cases if case["name"].rpartition("/")[0] == name]
        points = sorted((float(case["name"].rpartition("/")[2]), float(case["kl"])) for case in own)
        found += [(name.removesuffix("/-"), points)] if points else []
    return found


def over_time(tokens: int = 4096, turn: int = 256, most: int = 1024, ratio: float = 0.25) -> list[Line]:
    """Columns of a cache, a turn every `turn` tokens: never compacted, by budget, by turns."""
    by_budget, by_turns = Budget(most, protect_tokens=most // 4), Turns(protect_turns=2)
    how = Settings(ratio=ratio)

    def complete(held: Held, at: int) -> Region | None:
        return None if at % turn else turns(held, by_turns, how)

    return [
        ("not compacted", [(0.0, 0.0), (float(tokens), float(tokens))]),
        ("budget", _saw(tokens, turn, ratio, lambda held, _: budget(held, by_budget, how))),
        ("turns", _saw(tokens, turn, ratio, complete)),
    ]


def _saw(
    tokens: int, turn: int, ratio: float, fires: Callable[[Held, int], Region | None]
) -> list[tuple[float, float]]:
    """Columns where the line bends: before and after each event, and at the end."""
    held, points = Held(0, protected=64, adding=1), [(0.0, 0.0)]
    for at in range(1, tokens + 1):
        begins = (held.columns,) if at % turn == 1 else ()
        held = replace(held, columns=held.columns + 1, turns=(*held.turns, *begins))
        if (region := fires(held, at)) is not None:
            points.append((float(at), float(held.columns)))
            held = held.after(region, count(ratio, region[1] - region[0]))
            points.append((float(at), float(held.columns)))
    return [*points, (float(tokens), float(held.columns))]


def svg(title: str, below: str, lines: Sequence[Line], log: bool = False) -> str:
    """A line chart that stands alone, light or dark."""
    across, up = ([p[axis] for _, points in lines for p in points] for axis in (0, 1))
    x = Scale(min(across), max(across), LEFT, WIDTH - RIGHT)
    y = (axes.logarithmic if log else axes.linear)(up, HEIGHT - BOTTOM, TOP)
    drawn = [_line(name, points, x, y, COLOURS[i]) for i, (name, points) in enumerate(lines)]
    grid = [
        f'<path class="grid" d="M{LEFT} {y(t):.1f}H{WIDTH - RIGHT}"/>{_text(LEFT - 6, y(t) + 4, short(t), "end")}'
        for t in axes.ticks(y)
    ]
    below_axis = [_text(x(t), HEIGHT - BOTTOM + 18, short(t), "middle") for t in axes.ticks(x)]
    words = _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, below, "middle")
    label = f'role="img" aria-label="{escape(title, quote=True)}"'
    body = "".join([*grid, *below_axis, words, *drawn, *_names(lines, y)])
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {label}><style>{STYLE}</style>{body}</svg>\n'


def _line(name: str, points: Sequence[tuple[float, float]], x: Scale, y: Scale, colour: str) -> str:
    path = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)
    return f'<path d="M{path}" stroke="{colour}" stroke-width="2"><title>{escape(name)}</title></path>'


def _names(lines: Sequence[Line], y: Scale) -> list[str]:
    """Each line's name beside its end, pushed down where two would touch."""
    found, last = [], -20.0
    for place, i in sorted((y(points[-1][1]), i) for i, (_, points) in enumerate(lines)):
        last = max(place, last + 14)
        found.append(_text(WIDTH - RIGHT + 6, last + 4, lines[i][0], "start", COLOURS[i]))
    return found


def _text(x: float, y: float, words: str, anchor: str, colour: str = "") -> str:
    style = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def main(file: str, folder: str) -> None:
    """Write both figures."""
    cases = json.loads(Path(file).read_text())["cases"]
    lost = svg("KL a token against the fraction kept", "fraction kept", quality(cases), log=True)
    size = svg("Columns of a cache as a conversation goes on", "tokens", over_time())
    for name, content in (("compaction-quality.svg", lost), ("compaction-cache.svg", size)):
        (Path(folder) / name).write_text(content)


if __name__ == "__main__":
    main(*sys.argv[1:])
