"""Leaves out tests whose peer package or program is not installed, and says at the end which did not run."""

from __future__ import annotations

import re
import shutil
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest


def peers(extra: str) -> list[str]:
    """The packages of an extra."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    return [re.split(r"[<>=!~\[; ]", need)[0] for need in project["optional-dependencies"][extra]]


def installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def needs(item: pytest.Item) -> list[str]:
    """The packages that the `peer` marks of a test name."""
    return [mark.args[0] for mark in item.iter_markers("peer")]


def programs(item: pytest.Item) -> list[str]:
    """The programs that the `program` marks of a test name."""
    return [mark.args[0] for mark in item.iter_markers("program")]


ABSENT: set[str] = set()
VLLM = Path(__file__).parents[1] / ".venv-vllm" / ".ready"
EXTRAS = (
    ("bench", "not compared with", "`make bench` installs them"),
    ("verifiers", "its environment was not tested", "`make test-verifiers` tests it in a place of its own"),
)
"""Extras that `make setup` leaves out, what their absence means, and what to do about it."""


def runs(item: pytest.Item) -> bool:
    """Whether all that a test needs is there."""
    here = all(map(installed, needs(item))) and not ABSENT & set(programs(item))
    return here and (VLLM.is_file() or item.get_closest_marker("vllm") is None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ABSENT.update(name for item in items for name in programs(item) if not shutil.which(name))
    absent = [item for item in items if not runs(item)]
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in absent]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for extra, without, mend in EXTRAS:
        missing = [package for package in peers(extra) if not installed(package)]
        if missing:
            terminalreporter.line(f"not installed, so {without}: {', '.join(missing)} ({mend})")
    if not VLLM.is_file():
        terminalreporter.line("not installed, so not run against: a vLLM server (`make test-vllm` installs it)")
    for name in sorted(ABSENT):
        terminalreporter.line(f"not installed, so not compared with: {name} (`make test` installs it)")
