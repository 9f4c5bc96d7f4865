"""`turnwise new env NAME`: a working environment with its test and a config, in a new folder."""

from __future__ import annotations

from pathlib import Path

from turnwise.cli.page import show
from turnwise.errors import ConfigError
from turnwise.starter import title, write

USAGE = """usage: turnwise new env NAME

Writes the folder NAME: an environment that works as it is (NAME.py), its test (test_NAME.py), and a config that trains
a tiny model in it (NAME.toml). docs/environment-of-your-own.md grows it step by step."""

NEXT = {
    "python -m pytest {name}": "its test",
    "turnwise doctor --env {name}/{name}.py:{title}": "is it played and trained exactly, and what breaks?",
    "turnwise train @ {name}/{name}.toml": "learn it from random weights",
}
"""What to run then, and what it shows."""


def run(args: list[str]) -> int:
    """Write, and say what to do next."""
    if {"-h", "--help"} & set(args):
        show(USAGE)
        return 0
    if len(args) != 2 or args[0] != "env" or args[1].startswith("-"):
        raise ConfigError(f"found {repr(' '.join(args)) if args else 'nothing'}; expected `turnwise new env NAME`")
    name = args[1]
    for path in write(name, Path()):
        print(f"wrote {path}")
    print("next:")
    for command, why in NEXT.items():
        print(f"  {command.format(name=name, title=title(name))}\n      {why}")
    return 0
