"""Writes that survive a kill: a file is there whole or not at all, and what was written stays after a power cut.

JSON lines are the exception: a kill may leave a torn last line, which `read_lines` drops and `append_line` mends.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import RunError
from turnwise.sealed import sync


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in the place of `path` in one move."""
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        write(temporary)
        sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def encode(record: Mapping[str, Any]) -> str:
    """One line of valid JSON: NaN and infinity, which JSON has no word for, are null; unknown objects their text."""
    return json.dumps(_plain(record), default=str, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def append_line(path: Path, line: str) -> int:
    """Add one line and wait for the disk; returns how many bytes of a torn last line were cut off before it.

    A file that ends in `{"step": 1}\\n{"ste` loses its last 5 bytes, or the new line would be glued to them.
    """
    fresh = not path.exists()
    with path.open("ab") as file:
        torn = _torn_bytes(path)
        if torn:
            file.truncate(path.stat().st_size - torn)
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if fresh:
        sync(path.parent)
    return torn


def _torn_bytes(path: Path) -> int:
    """Bytes after the last line end: 0 for `a\\n`, 2 for `a\\nbc`."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return 0
        file.seek(-1, os.SEEK_END)
        if file.read() == b"\n":
            return 0
        file.seek(0)
        content = file.read()
    return len(content) - content.rfind(b"\n") - 1


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records of a file, and how many torn last lines were dropped (0 or 1); no file is no records."""
    if not path.exists():
        return [], 0
    *lines, rest = path.read_bytes().split(b"\n")
    return [_decode(path, number, line) for number, line in enumerate(lines, 1)], int(rest != b"")


def _decode(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise RunError(
            f"{path}, line {number}: found {line[:60]!r}, expected one JSON object a line; "
            "delete that line to go on without it"
        )
    return record
