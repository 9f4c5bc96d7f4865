"""Checkpoints: a folder a step, complete or absent whenever the process is killed.

A checkpoint is written under a temporary name, sealed with the list of its files, and only then renamed into place.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from turnwise.errors import RunError
from turnwise.runs.folder import RunFolder, step_of
from turnwise.sealed import seal, sealed, sync

ATTEMPT = re.compile(r"\.tmp-.*-(\d+)")


def save(folder: RunFolder, step: int, write: Callable[[Path], None], keep: int) -> Path:
    """Let `write` fill the checkpoint of `step`, then drop the oldest beyond `keep`; a step saved again is replaced."""
    if keep < 1:
        raise RunError(f"found keep {keep}, expected at least 1 checkpoint to stay")
    folder.checkpoints.mkdir(exist_ok=True)
    attempt = _attempt(folder, f"step-{step:06d}")
    attempt.mkdir()
    write(attempt)
    seal(attempt, {"step": step})
    place = folder.checkpoints / f"step-{step:06d}"
    if place.exists():
        place.rename(_attempt(folder, f"old-{place.name}"))
    attempt.rename(place)
    sync(folder.checkpoints)
    _prune(folder, keep)
    return place


def newest(folder: RunFolder) -> tuple[int, Path] | None:
    """The step and place of the newest complete checkpoint."""
    found = _complete(folder)
    return found[-1] if found else None


def _attempt(folder: RunFolder, name: str) -> Path:
    """A free temporary name that says which process uses it."""
    path = folder.checkpoints / f".tmp-{name}-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    return path


def _complete(folder: RunFolder) -> list[tuple[int, Path]]:
    if not folder.checkpoints.is_dir():
        return []
    steps = ((step_of(path), path) for path in folder.checkpoints.iterdir() if path.is_dir())
    return sorted((step, path) for step, path in steps if step is not None and sealed(path))


def _prune(folder: RunFolder, keep: int) -> None:
    for _, path in _complete(folder)[:-keep]:
        # Renamed first: a kill in the middle of deleting must not leave half a checkpoint under a good name.
        path.rename(_attempt(folder, path.name))
    for path in folder.checkpoints.iterdir():
        match = ATTEMPT.fullmatch(path.name)
        if match and not _runs_elsewhere(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _runs_elsewhere(pid: int) -> bool:
    """Whether another living process has this id, so that its attempt is left alone."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
