"""report.html: what a run did, as one page that needs nothing but itself, for sending to somebody.

Everything comes from the run folder; what a run did not record is left out of the page.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from turnwise.runs import chat, curves, disk, page, rollouts
from turnwise.runs.axes import short
from turnwise.runs.folder import RunFolder, by_step

WARNINGS = {"warning", "error", "non_finite", "torn_line"}
"""Kinds of events that stand under Warnings; the others are folded."""
Line = Mapping[str, Any]


def write(folder: RunFolder) -> Path:
    """Write the report of a run and say where it is."""
    path = folder.path / "report.html"
    text = render(folder)
    # What an episode said may hold lone surrogates, which UTF-8 cannot.
    disk.replace(path, lambda p: p.write_text(text, encoding="utf-8", errors="backslashreplace"))
    return path


def render(folder: RunFolder) -> str:
    """The page as text."""
    toml = folder.config.read_text(encoding="utf-8")
    config = tomllib.loads(toml)
    lines, events = folder.metrics(), folder.events()
    name = str(config.get("name", folder.path.name))
    parts = [
        ("success", "Held-out success", _success(lines)),
        ("curves", "Curves", curves.figures(lines)),
        ("numbers", "Last step", _numbers(lines)),
        ("warnings", "Warnings", _warnings(events)),
        ("episodes", "Sample episodes", _episodes(folder)),
        ("config", "Config", _config(toml)),
    ]
    sections = [part for part in parts if part[2]]
    return page.document(f"{name} · Turnwise", _header(name, config, lines), sections, _footer(folder))


def _header(name: str, config: Mapping[str, Any], lines: Sequence[Line]) -> str:
    env, train = config.get("env", {}), config.get("train", {})
    arguments = ", ".join(f"{k}={v}" for k, v in env.get("args", {}).items())
    done = max((line["step"] for line in lines), default=0)
    seconds = sum(line.get("time/step_s") or 0.0 for line in lines)
    facts = [
        ("model", config.get("model")),
        ("environment", env.get("id") and f"{env['id']}({arguments})"),
        ("loss", config.get("loss", {}).get("type")),
        ("steps", f"{done} of {train['steps']}" if "steps" in train else str(done)),
        ("episodes a step", train.get("tasks") and env.get("group") and str(train["tasks"] * env["group"])),
        ("time", _duration(seconds) if seconds else None),
        ("seed", str(config["seed"]) if "seed" in config else None),
    ]
    chips = "".join(f"<li><span>{k}</span> <b>{escape(str(v))}</b></li>" for k, v in facts if v)
    return f'<h1>{escape(name)}</h1><ul class="chips">{chips}</ul>'


def _duration(seconds: float) -> str:
    """Time for people: `48 s`, `12 min 5 s`, `3 h 20 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _success(lines: Sequence[Line]) -> str:
    """Before and after: the first and the last evaluation, with their intervals."""
    evals = [line for line in lines if line.get("eval/success") is not None]
    if not evals:
        return ""
    first, last = evals[0], evals[-1]
    shown = [(first, "before")] if last is first else [(first, "before"), (last, "after")]
    rows = "".join(_success_row(line, kind) for line, kind in shown)
    head = "<tr><th>Policy</th><th>Success</th><th>95% interval</th><th>Episodes</th><th class='wide'></th></tr>"
    table = f'<div class="scroll"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    return f'<div class="card hero"><div>{_gain(first, last)}</div>{table}</div>'


def _gain(first: Line, last: Line) -> str:
    now = f'<div class="gain">{_percent(last["eval/success"])} <small>on tasks never trained on</small></div>'
    if last is first:
        return now
    points = 100 * (last["eval/success"] - first["eval/success"])
    apart = _apart(first, last)
    return now + f'<p class="quiet">{points:+.1f} points since step {first["step"]}.{apart}</p>'


def _interval(line: Line) -> tuple[float, float] | None:
    low, high = line.get("eval/low"), line.get("eval/high")
    return None if low is None or high is None else (low, high)


def _apart(first: Line, last: Line) -> str:
    a, b = _interval(first), _interval(last)
    if a is None or b is None:
        return ""
    overlap = max(a[0], b[0]) <= min(a[1], b[1])
    return " The two intervals overlap." if overlap else " The two intervals do not overlap."


def _success_row(line: Line, kind: str) -> str:
    success, interval, n = line["eval/success"], _interval(line), line.get("eval/n")
    said, whisker = "unknown", ""
    if interval:
        low, high = interval
        said = f"{_percent(low)} to {_percent(high)}"
        whisker = f'<u style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></u>'
    bar = f'<div class="bar"><i style="width:{100 * success:.1f}%"></i>{whisker}</div>'
    name = "Before training" if line["step"] == 0 else f"Step {line['step']}"
    return (
        f'<tr class="{kind}"><th scope="row">{name}</th><td><b>{_percent(success)}</b></td><td>{said}</td>'
        f"<td>{'unknown' if n is None else short(n)}</td><td class='wide'>{bar}</td></tr>"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _numbers(lines: Sequence[Line]) -> str:
    """Every number of the last line, by the first word of its name."""
    if not lines:
        return ""
    last = lines[-1]
    keys = sorted(key for key in last if key != "step")
    groups = "".join(
        f"<article><h3>{escape(word)}</h3><dl>{''.join(_number(key, last[key]) for key in own)}</dl></article>"
        for word, own in groupby(keys, lambda key: key.partition("/")[0])
    )
    return f'<p class="note">Step {last["step"]}.</p><div class="card numbers">{groups}</div>'


def _number(key: str, value: Any) -> str:
    text = "not a number" if value is None else short(value) if isinstance(value, int | float) else str(value)
    return f"<div><dt>{escape(key.partition('/')[2] or key)}</dt><dd>{escape(text)}</dd></div>"


def _warnings(events: Sequence[Line]) -> str:
    """What went wrong, equal ones in a row counted, and the other events behind a fold."""
    bad = [e for e in events if e.get("kind") in WARNINGS]
    rest = [e for e in events if e.get("kind") not in WARNINGS]
    top = f'<ul class="events">{_events(bad)}</ul>' if bad else '<p class="quiet">None.</p>'
    fold = f'<ul class="events">{_events(rest, "plain")}</ul>'
    more = f"<details><summary>{len(rest)} other events</summary>{fold}</details>" if rest else ""
    return f'<div class="card">{top}{more}</div>'


def _events(events: Sequence[Line], style: str = "") -> str:
    runs = [list(same) for _, same in groupby(events, lambda e: (e.get("kind"), _said(e)))]
    return "".join(
        f'<li class="{style or escape(str(same[0].get("kind")))}"><time>{_time(same[-1])}</time>'
        f"<b>{escape(str(same[0].get('kind')))}</b><span>{escape(_said(same[0]))}"
        f"{f' <i>({len(same)} times)</i>' if len(same) > 1 else ''}</span></li>"
        for same in runs
    )


def _time(event: Line) -> str:
    return escape(str(event.get("time", ""))[:19].replace("T", " "))


def _said(event: Line) -> str:
    """An event's data as words; its `text` stands first."""
    rest = {k: v for k, v in event.items() if k not in {"time", "kind", "text"}}
    return " · ".join([*([str(event["text"])] if "text" in event else []), *(f"{k} {v}" for k, v in rest.items())])


def _episodes(folder: RunFolder) -> str:
    """The best, the median and the worst episode of the last rollout file."""
    files = by_step(folder.rollouts)
    if not files:
        return ""
    step, path = max(files.items())
    ranked = sorted(rollouts.load(path), key=lambda t: -t.reward)
    middle = len(ranked) // 2
    places = {"Best": 0, "Median": middle, "Worst": len(ranked) - 1}
    chosen = {at: label for label, at in reversed(places.items()) if 0 <= at < len(ranked)}
    shown = "".join(chat.episode(chosen[at], ranked[at]) for at in sorted(chosen))
    note = f'<p class="note">By reward, of the {len(ranked)} episodes of step {step}.</p>'
    return f'{note}<div class="episodes">{shown}</div>'


def _config(toml: str) -> str:
    return (
        '<div class="card"><details><summary>The whole config: save it as run.toml to run this again</summary>'
        f'<pre class="config">{escape(toml)}</pre></details></div>'
    )


def _footer(folder: RunFolder) -> str:
    return f"Made by Turnwise from the run folder <b>{escape(folder.path.name)}</b>."
