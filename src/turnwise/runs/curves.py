"""Which curves the report shows: metrics lines in, one figure a question out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from turnwise.runs import charts
from turnwise.runs.axes import short
from turnwise.runs.charts import Series

Line = Mapping[str, Any]
MOST_AREAS = 6


def figures(lines: Sequence[Line]) -> str:
    """All figures there are numbers for."""
    drawn = [
        _lines("Reward", lines, {"mean": "reward/mean"}),
        _success(lines),
        _lines("Turns an episode", lines, {"turns": "episode/turns"}, bounds=(0.0,)),
        _areas("How episodes end", _endings(lines)),
        _lines("Loss", lines, {"loss": "loss/total", "held-out": "eval/loss"}),
        _lines("Entropy of the policy", lines, {"entropy": "policy/entropy"}, bounds=(0.0,)),
        _lines("Largest sampler/trainer gap", lines, _gaps(lines), log=True),
        _cache(lines),
        _lines("Tokens a second", lines, {"tokens": "perf/tokens_per_s"}, bounds=(0.0,)),
        _areas("Seconds a step, by stage", _stages(lines)),
    ]
    shown = "".join(drawn)
    if not shown:
        return ""
    span = charts.window(sum("reward/mean" in line for line in lines))
    note = f"Points are steps; lines are moving averages over about {span} steps." if span > 1 else "Points are steps."
    return f'<p class="note">{note}</p><div class="charts">{shown}</div>'


def _points(lines: Sequence[Line], key: str) -> charts.Points:
    return [(line["step"], line[key]) for line in lines if line.get(key) is not None]


def _lines(
    title: str, lines: Sequence[Line], keys: Mapping[str, str], *, log: bool = False, bounds: Sequence[float] = ()
) -> str:
    series = [Series(name, points) for name, key in keys.items() if (points := _points(lines, key))]
    if not series:
        return ""
    hidden = sum(y <= 0 for s in series for _, y in s.points) if log else 0
    note = f" ({hidden} at zero, not shown)" if hidden else ""
    return _figure(title, charts.lines(title, series, log=log, bounds=bounds), series, note)


def _success(lines: Sequence[Line]) -> str:
    """Success while training, and on held-out tasks with its interval."""
    title = "Success"
    evals = [line for line in lines if line.get("eval/success") is not None]
    bounded = all(line.get("eval/low") is not None and line.get("eval/high") is not None for line in evals)
    whiskers = [(line["eval/low"], line["eval/high"]) for line in evals] if bounded else []
    series = [
        Series("training", _points(lines, "success/mean")),
        Series("held-out", _points(evals, "eval/success"), whiskers, marked=True),
    ]
    if not any(s.points for s in series):
        return ""
    return _figure(title, charts.lines(title, series, bounds=(0.0, 1.0)), series)


def _gaps(lines: Sequence[Line]) -> dict[str, str]:
    """Before and after the first compaction apart, where there was one."""
    if any("mismatch/max_after" in line for line in lines):
        return {"before an event": "mismatch/max_before", "after": "mismatch/max_after"}
    return {"gap": "mismatch/max"}


def _cache(lines: Sequence[Line]) -> str:
    """How full caches were, in a run that compacts them."""
    if not any(line.get("compaction/events") for line in lines):
        return ""
    keys = {"largest": "cache/peak_max", "mean": "cache/peak_mean"}
    return _lines("Most tokens and slots in a cache", lines, keys, bounds=(0.0,))


def _areas(title: str, series: Sequence[Series]) -> str:
    return _figure(title, charts.areas(title, series), series) if series else ""


def _endings(lines: Sequence[Line]) -> list[Series]:
    """One series a stop reason, the commonest first; beyond six the rest is one series."""
    played = [line for line in lines if any(key.startswith("stop/") for key in line)]
    totals: dict[str, float] = {}
    for line in played:
        for key, value in line.items():
            if key.startswith("stop/"):
                totals[key] = totals.get(key, 0.0) + (value or 0.0)
    ranked = sorted((k for k in totals if totals[k] > 0), key=lambda k: -totals[k])
    named, rest = ranked[: MOST_AREAS - 1], ranked[MOST_AREAS - 1 :]
    series = [_sum(k.removeprefix("stop/").replace("_", " "), played, [k]) for k in named]
    return [*series, _sum("others", played, rest)] if rest else series


def _stages(lines: Sequence[Line]) -> list[Series]:
    """Seconds of each stage; what a step took beyond its named stages is `other`."""
    timed = [line for line in lines if line.get("time/step_s") is not None]
    stages = sorted({k for line in timed for k in line if k.startswith("time/") and k != "time/step_s"})
    if not timed or not stages:
        return []
    stages.sort(key=lambda key: -sum(line.get(key) or 0.0 for line in timed))
    named = [_sum(k.removeprefix("time/").removesuffix("_s"), timed, [k]) for k in stages[: MOST_AREAS - 1]]
    spent = [sum(v for _, v in at) for at in zip(*(s.points for s in named), strict=True)]
    other = [(line["step"], max(0.0, line["time/step_s"] - s)) for line, s in zip(timed, spent, strict=True)]
    return [*named, Series("other", other)]


def _sum(name: str, lines: Sequence[Line], keys: Sequence[str]) -> Series:
    return Series(name, [(line["step"], sum(line.get(k) or 0.0 for k in keys)) for line in lines])


def _figure(title: str, svg: str, series: Sequence[Series], note: str = "") -> str:
    """A chart under its title, with the last value, and a legend where there is more than one series."""
    last = next((s.points[-1] for s in series if s.points), None)
    now = f"last {short(last[1])}" if last and len(series) == 1 else ""
    shapes = [
        f'<i class="{"round" if s.marked else ""}" style="background:var(--c{i})"></i>' for i, s in enumerate(series)
    ]
    names = [f"<span>{shape}{escape(s.name)}</span>" for shape, s in zip(shapes, series, strict=True) if s.points]
    legend = f'<div class="legend">{"".join(names)}</div>' if len(series) > 1 else ""
    caption = f"<figcaption><h3>{escape(title)}</h3><span>{now}{note}</span>{legend}</figcaption>"
    return f"<figure>{caption}{svg}<output></output></figure>"
