"""The life of a run around its steps, whatever a step does: start or resume, log, evaluate, save, stop.

A step may depend only on the config and its number, so that a run that was killed goes on with the same numbers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from turnwise.config.run import CheckpointConfig
from turnwise.reporter import Reporter
from turnwise.runs import checkpoint
from turnwise.runs.folder import RunFolder
from turnwise.runs.resume import check_same


class Saved(Protocol):
    """What a checkpoint is made of."""

    def restore(self, folder: Path) -> dict[str, float]: ...

    def save(self, folder: Path, extra: dict[str, float]) -> None: ...


class Work(Protocol):
    """What a run does."""

    async def evaluate(self) -> dict[str, float]: ...

    async def step(self, number: int) -> dict[str, float]:
        """Do step `number`, the first being 0; returns its numbers."""
        ...


Parts = TypeVar("Parts", bound=Saved)


def begin(
    path: Path, config_toml: str, assemble: Callable[[Path | None], Parts], command: str, *, resume: bool
) -> tuple[Parts, RunFolder, int, float]:
    """A run's parts, its folder, steps done, and seconds spent on them. `assemble` is given the checkpoint to load."""
    if not resume:
        parts = assemble(None)  # before there is a folder, so that a mistake found here leaves none behind
        folder = RunFolder.create(path, config_toml)
        folder.event("start")
        return parts, folder, 0, 0.0
    folder = RunFolder.open(path)
    check_same(folder, config_toml, command)
    folder.write_config(config_toml)
    done, place = checkpoint.newest(folder) or (0, None)
    parts = assemble(place)
    folder.event("resume", step=done)
    folder.rewind(done if place else -1)
    return parts, folder, done, parts.restore(place)["elapsed_s"] if place else 0.0


async def drive(
    work: Work,
    parts: Saved,
    folder: RunFolder,
    reporter: Reporter,
    stop: threading.Event,
    config: CheckpointConfig,
    began: float,
    done: int,
    steps: int,
) -> int:
    """Steps `done` + 1 to `steps`, or to the end of the one in which `stop` is set; step 0 is the evaluation before
    training. Returns how many are done."""
    if done == 0 and not folder.metrics():
        before = await work.evaluate()
        folder.log(0, before)
        reporter.step(0, steps, before)
    while done < steps and not stop.is_set():
        metrics = await work.step(done)
        done += 1
        folder.log(done, metrics)
        reporter.step(done, steps, metrics)
        if done % config.every == 0 or done == steps or stop.is_set():
            extra = {"elapsed_s": time.perf_counter() - began}
            checkpoint.save(folder, done, lambda place, extra=extra: parts.save(place, extra), config.keep)  # type: ignore[misc]
    return done
