"""`--json PATH`, for the commands that measure."""

from __future__ import annotations

from pathlib import Path

from turnwise.errors import ConfigError


def json_path(args: list[str]) -> tuple[Path | None, list[str]]:
    """Take `--json PATH` or `--json=PATH` out of the words."""
    words = [part for word in args for part in (word.split("=", 1) if word.startswith("--json=") else [word])]
    if "--json" not in words:
        return None, words
    at = words.index("--json")
    if at + 1 == len(words) or words[at + 1].startswith("--"):
        raise ConfigError("found --json without a path; expected `--json PATH`")
    return Path(words[at + 1]), words[:at] + words[at + 2 :]
