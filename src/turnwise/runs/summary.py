"""A run in a few numbers: what it is, how far it is, what came of it, and what is wrong with it."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.runs import breaks
from turnwise.runs.folder import RunFolder
from turnwise.types import BreakKind

SHOWN = (
    "reward/mean",
    "success/mean",
    "episode/turns",
    "episode/tokens",
    "loss/total",
    "eval/loss",
    "policy/entropy",
    "mismatch/max",
    "optim/grad_norm",
    "samples/merge_ratio",
    "perf/tokens_per_s",
    "time/step_s",
)
ACCOUNT = "samples/"
WARNINGS = {"warning", "error", "non_finite", "torn_line", "episode_failed"}
Line = Mapping[str, Any]


def summary(folder: RunFolder) -> dict[str, Any]:
    """Everything the first screen shows, by section."""
    config = tomllib.loads(folder.config.read_text(encoding="utf-8"))
    lines, events = folder.metrics(), folder.events()
    trained = [line for line in lines if "reward/mean" in line or "loss/total" in line]
    last: Line = trained[-1] if trained else {}
    return {
        "run": _about(folder, config, lines),
        "last": {name: last[name] for name in SHOWN if last.get(name) is not None},
        "held_out": [_held_out(line) for line in _ends([x for x in lines if x.get("eval/success") is not None])],
        "stops": _parts(last, "stop/"),
        "samples": {name: n for name, n in _parts(last, ACCOUNT).items() if not name.startswith("prefix_mismatch/")},
        "breaks": _breaks(trained),
        "warnings": _warnings(events),
    }


def _about(folder: RunFolder, config: Mapping[str, Any], lines: Sequence[Line]) -> dict[str, Any]:
    env, train = config.get("env", {}), config.get("train", {})
    return {
        "name": config.get("name", folder.path.name),
        "folder": str(folder.path),
        "model": config.get("model"),
        "env": env.get("id"),
        "loss": config.get("loss", {}).get("type"),
        "seed": config.get("seed"),
        "step": max((line["step"] for line in lines), default=0),
        "steps": train.get("steps"),
        "seconds": round(sum(line.get("time/step_s") or 0.0 for line in lines), 1),
    }


def _ends(lines: Sequence[Line]) -> Sequence[Line]:
    """The first and the last."""
    return lines if len(lines) < 2 else [lines[0], lines[-1]]


def _held_out(line: Line) -> dict[str, Any]:
    return {"step": line["step"], **_parts(line, "eval/", ("success", "low", "high", "n"))}


def _parts(line: Line, prefix: str, names: Sequence[str] | None = None) -> dict[str, float]:
    found = {k.removeprefix(prefix): v for k, v in line.items() if k.startswith(prefix) and v is not None}
    return found if names is None else {name: found[name] for name in names if name in found}


def _breaks(lines: Sequence[Line]) -> dict[str, int]:
    """Turns of the whole run by kind."""
    return {kind.value: int(sum(line.get(f"{breaks.METRIC}{kind}") or 0 for line in lines)) for kind in BreakKind}


def _warnings(events: Sequence[Line]) -> list[dict[str, Any]]:
    """What went wrong, equal ones counted, the newest last."""
    said = [(e["kind"], str(e.get("text") or _rest(e))) for e in events if e.get("kind") in WARNINGS]
    return [{"kind": kind, "text": text, "times": n} for (kind, text), n in Counter(said).items()]


def _rest(event: Line) -> str:
    return ", ".join(f"{k} {v}" for k, v in event.items() if k not in {"time", "kind"})
