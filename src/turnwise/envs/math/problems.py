"""In: a JSONL file, or the name of a Hugging Face dataset. Out: its problems, as pairs of question and answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from turnwise.envs.extras import need
from turnwise.errors import ConfigError


@cache
def load(path: str, question: str, answer: str, split: str, config: str | None) -> list[tuple[str, str]]:
    """Every problem in order; a path that ends in .jsonl is a file, anything else a dataset."""
    rows = _lines(Path(path)) if path.endswith(".jsonl") else _dataset(path, split, config)
    found = [_pair(row, question, answer, f"{path}, problem {number}") for number, row in enumerate(rows, 1)]
    if not found:
        raise ConfigError(f"found no problem in {path}; expected at least one")
    return found


def _lines(path: Path) -> Iterable[Mapping[str, Any]]:
    if not path.is_file():
        raise ConfigError(f"found no file {path}; expected one JSON object a line (from {Path.cwd()})")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"found no JSON in line {number} of {path}: {error}") from error
        if not isinstance(row, dict):
            raise ConfigError(f"found {line.strip()[:40]!r} in line {number} of {path}; expected a JSON object")
        yield row


def _dataset(name: str, split: str, config: str | None) -> Iterable[Mapping[str, Any]]:
    need("datasets", "math", "datasets")
    import datasets

    loaded: Iterable[Mapping[str, Any]] = datasets.load_dataset(name, config, split=split)
    return loaded


def _pair(row: Mapping[str, Any], question: str, answer: str, where: str) -> tuple[str, str]:
    """Question and answer as text; an integer may be written as a number."""
    for field, key in ((question, "question"), (answer, "answer")):
        if not isinstance(row.get(field), str | int) or isinstance(row[field], bool):
            raise ConfigError(
                f"found {row.get(field)!r} under {field!r} in {where}; expected a text or an integer: its fields are "
                f"{sorted(row)}, name the right one as env.args.{key}"
            )
    return str(row[question]), str(row[answer])
