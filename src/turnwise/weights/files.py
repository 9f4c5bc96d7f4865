"""Weights from a trainer to engines through a folder: one sub-folder a version, complete or absent.

    weights/version-000012/   safetensors, config and tokenizer in Hugging Face layout, and complete.json

A reader never sees half a version: it is written aside, sealed with the list of its files, then renamed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from turnwise.errors import DataError
from turnwise.sealed import seal, sealed, sync

NAME = re.compile(r"version-(\d{6,})")


def publish(save: Callable[[Path], None], folder: Path, version: int, keep: int = 2) -> Path:
    """Let `save` write the weights of `version` (Policy.save does), then drop the oldest beyond `keep`.

    A version published again is left as it is: what engines may be reading never changes.
    """
    if version < 0 or keep < 1:
        raise DataError(f"found version {version}, keep {keep}; expected a version of at least 0 and keep at least 1")
    place = folder / f"version-{version:06d}"
    folder.mkdir(parents=True, exist_ok=True)
    if not sealed(place):
        aside = _aside(folder, place.name)
        aside.mkdir()
        save(aside)
        seal(aside, {"version": version})
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)
        sync(folder)
    _prune(folder, keep)
    return place


def newest(folder: Path) -> tuple[int, Path] | None:
    """The newest complete version and where it stands."""
    found = versions(folder)
    return found[-1] if found else None


def receive(folder: Path, version: int | None = None) -> tuple[int, Path]:
    """The version asked for, by default the newest, and where it stands; an error where it is not complete."""
    found = dict(versions(folder))
    wanted = max(found, default=None) if version is None else version
    if wanted is None or wanted not in found:
        asked = "any version" if version is None else f"version {version}"
        raise DataError(
            f"found {sorted(found) or 'no complete version'} in {str(folder)!r}; expected {asked} of weights there; "
            "publish it, or name the folder that `publish` writes to"
        )
    return wanted, found[wanted]


def versions(folder: Path) -> list[tuple[int, Path]]:
    """Every complete version, oldest first."""
    if not folder.is_dir():
        return []
    named = [(NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted((int(match[1]), path) for match, path in named if match and sealed(path))


def _aside(folder: Path, name: str) -> Path:
    path = folder / f".tmp-{name}-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    return path


def _prune(folder: Path, keep: int) -> None:
    """Renamed first, so that a kill while deleting leaves no half version under a good name."""
    for _, path in versions(folder)[:-keep]:
        aside = _aside(folder, path.name)
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
