"""One run on disk: its config, one line of numbers a step, its events and the places of everything else.

Every write is on the disk when the call returns, and a kill in the middle of one never spoils what stood before.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from turnwise.errors import RunError
from turnwise.runs import disk
from turnwise.sealed import sync

STEP = re.compile(r"step-(\d+)(\.parquet)?")


def step_of(path: Path) -> int | None:
    """The step in the name of a checkpoint or rollout file: 12 for `step-000012.parquet`, None for other names."""
    match = STEP.fullmatch(path.name)
    return int(match[1]) if match else None


def by_step(folder: Path) -> dict[int, Path]:
    """The files of a subfolder that belong to a step, in order."""
    found = ((step_of(path), path) for path in folder.glob("*.parquet"))
    return dict(sorted((step, path) for step, path in found if step is not None))


class RunFolder:
    """A run's folder. `torn` says how many torn last lines were dropped when each file was last read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: dict[str, int] = {}

    @classmethod
    def create(cls, path: Path, config_toml: str) -> RunFolder:
        """Start a run: `path` must not hold one yet."""
        if (path / "config.toml").exists() or (path / "metrics.jsonl").exists():
            raise RunError(
                f"{path} already holds a run, expected a new folder; continue that run with --resume, "
                "or choose another name with --name"
            )
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        # The config comes first: it is what makes the folder a run, and `open` makes the rest where it is missing.
        folder.write_config(config_toml)
        folder._make()
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The run at `path`, to read it or to go on with it."""
        if not (path / "config.toml").is_file():
            raise RunError(f"{path} holds no run: expected a config.toml in it; `turnwise train` starts a run")
        folder = cls(path)
        folder._make()
        return folder

    def _make(self) -> None:
        self.rollouts.mkdir(exist_ok=True)
        self.checkpoints.mkdir(exist_ok=True)

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def rollout(self, step: int) -> Path:
        """Where the trajectories of a step belong."""
        return self.rollouts / f"step-{step:06d}.parquet"

    @property
    def token_tables(self) -> Path:
        return self.path / "tokens"

    def tokens(self, step: int) -> Path:
        """Where the token export of a step belongs."""
        return self.token_tables / f"step-{step:06d}.parquet"

    def write_config(self, toml: str) -> None:
        """Write the run's config, whole or not at all."""
        disk.replace(self.config, lambda p: _text(p, toml))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the numbers of one step; NaN and infinity become null, and an event names them."""
        self._append("metrics.jsonl", {"step": step, **metrics})
        odd = {key: str(value) for key, value in metrics.items() if not math.isfinite(value)}
        if odd:
            self.event("non_finite", step=step, values=odd)

    def metrics(self) -> list[dict[str, Any]]:
        """One dict a logged line, in order."""
        return self._read("metrics.jsonl")

    def event(self, kind: str, **data: Any) -> None:
        """Add something that happened, with the time in UTC."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._append("events.jsonl", {"time": now, "kind": kind, **data})

    def events(self) -> list[dict[str, Any]]:
        """One dict an event, in order."""
        return self._read("events.jsonl")

    def write_json(self, name: str, data: Mapping[str, Any]) -> Path:
        """Write a JSON file such as summary.json, whole or not at all."""
        path = self.path / name
        disk.replace(path, lambda p: _text(p, disk.encode(data) + "\n"))
        return path

    def rewind(self, step: int) -> None:
        """Forget what was recorded after `step`, so that the run goes on from the checkpoint of that step.

        Later checkpoints are kept but renamed (`undone-step-000020`): they belong to a future that no longer happens.
        """
        lines = self.metrics()
        kept = [line for line in lines if line["step"] <= step]
        disk.replace(self.path / "metrics.jsonl", lambda p: _text(p, "".join(f"{disk.encode(k)}\n" for k in kept)))
        rollouts = _later(self.rollouts, step)
        tokens = _later(self.token_tables, step)
        for path in (*rollouts, *tokens):
            path.unlink()
        checkpoints = _later(self.checkpoints, step)
        for path in checkpoints:
            aside = path.with_name(f"undone-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
        for leftover in (*self.path.glob(".tmp-*"), *self.rollouts.glob(".tmp-*"), *self.token_tables.glob(".tmp-*")):
            leftover.unlink()
        sync(self.rollouts)
        sync(self.checkpoints)
        self.event(
            "rewind",
            step=step,
            metrics_dropped=len(lines) - len(kept),
            rollouts_dropped=[p.name for p in rollouts],
            tokens_dropped=[p.name for p in tokens],
            checkpoints_renamed=[p.name for p in checkpoints],
        )

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        torn = disk.append_line(self.path / name, disk.encode(record))
        if torn:
            self.event("torn_line", file=name, bytes=torn)

    def _read(self, name: str) -> list[dict[str, Any]]:
        records, self.torn[name] = disk.read_lines(self.path / name)
        return records


def _later(folder: Path, step: int) -> list[Path]:
    return sorted(path for path in folder.glob("*") if (found := step_of(path)) is not None and found > step)


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
