"""Folders that are complete or absent, however a process that writes them ends.

A folder is filled under a temporary name, sealed with the list of its files, and only then renamed into place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

SEAL = "complete.json"


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal(folder: Path, facts: Mapping[str, int]) -> None:
    """Write the list of files, and some facts beside it, once they are all on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    place = folder / SEAL
    place.write_text(json.dumps({**facts, "files": _files(folder)}))
    sync(place)
    sync(folder)


def sealed(folder: Path) -> bool:
    """Whether the listed files are all there at their size; a half-copied folder is not complete."""
    place = folder / SEAL
    if not place.is_file():
        return False
    try:
        said = json.loads(place.read_text())
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("files", {}).items() <= _files(folder).items()


def _files(folder: Path) -> dict[str, int]:
    """Every file but the seal, with its size."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.stat().st_size for p in files if p != folder / SEAL}
