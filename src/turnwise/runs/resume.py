"""A run's config and the one it is to go on with: equal in all that its numbers depend on, or refused."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from typing import Any

from turnwise.errors import ConfigError
from turnwise.runs.folder import RunFolder

MAY_CHANGE = {
    "name",
    "out",
    "train.steps",
    "checkpoint.every",
    "checkpoint.keep",
    "train.export_tokens",
    "train.warn_breaks",
}
"""What a resumed run may be told anew: nothing that changes the numbers of its steps."""


def check_same(folder: RunFolder, config_toml: str, command: str = "train") -> None:
    """A run goes on under the config it was started with, or its numbers would mean two things."""
    found = unlike(folder.config.read_text(), config_toml, MAY_CHANGE)
    if found:
        raise ConfigError(
            f"found {found}; expected the config the run was started with: resume with "
            f"`turnwise {command} @ {folder.config} --resume`, or choose another --name for a new run"
        )


def unlike(stands_toml: str, given_toml: str, may_change: Collection[str]) -> str:
    """Which keys of two configs differ, in words; "" where none does."""
    stands, given = (_flat(tomllib.loads(text)) for text in (stands_toml, given_toml))
    keys = sorted(k for k in (stands.keys() | given.keys()) - {*may_change} if stands.get(k) != given.get(k))
    return ", ".join(f"{k} {given.get(k)!r} (the run has {stands.get(k)!r})" for k in keys)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train": {"lr": 1}} is {"train.lr": 1}."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
