"""The environment that `turnwise new env NAME` writes, with its test and a config; STARTER and Starter stand for NAME.

In: a name. Out: a folder of three files that work as they are.
"""

from __future__ import annotations

import re
from pathlib import Path

from turnwise.errors import ConfigError

HERE = Path(__file__).parent
FILES = {"starter.py": "{name}.py", "check_starter.py": "test_{name}.py", "starter.toml": "{name}.toml"}
"""What is copied, and what it is called."""
NAME = re.compile(r"[a-z][a-z0-9_]*")


def write(name: str, parent: Path) -> list[Path]:
    """Write the folder `parent`/`name`, which must not exist; returns the files."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"found name {name!r}; expected small letters, digits and underscores, a letter first, such as word_count"
        )
    folder = parent / name
    if folder.exists():
        raise ConfigError(f"found {folder}; expected nothing there: choose another name, or remove it first")
    folder.mkdir(parents=True)
    return [_copy(source, folder / target.format(name=name), name) for source, target in FILES.items()]


def _copy(source: str, target: Path, name: str) -> Path:
    """One file, the stand-ins replaced: starter, Starter."""
    text = (HERE / source).read_text(encoding="utf-8")
    target.write_text(text.replace("Starter", title(name)).replace("starter", name), encoding="utf-8")
    return target


def title(name: str) -> str:
    """The class of that name: word_count is WordCount."""
    return "".join(part.capitalize() for part in name.split("_"))
