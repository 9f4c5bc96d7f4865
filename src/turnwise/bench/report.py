"""Cases of figures to a table on the terminal and a JSON file whose names stay the same.

{"command", "commit", "machine": {...}, "cases": [{"name", figure: value}]}; null is a figure that was not measured.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.table import Table

from turnwise.errors import RunError

Value = float | str | None
Case = Mapping[str, Value]
"""`name` and figures. What was repeated has its median as `x` and its lowest and highest as `x_min` and `x_max`."""

ROOT = Path(__file__).parents[3]
"""The repository, where this is one."""


def write(path: Path, command: str, cases: Sequence[Case]) -> None:
    """Write the file, and its folder if there is none."""
    content = {"command": command, "commit": commit(), "machine": machine(), "cases": [dict(c) for c in cases]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise RunError(f"found {path}, which cannot be written: {error.strerror}; expected a file name") from error


def table(cases: Sequence[Case]) -> Table:
    """Cases side by side; the longer side goes down, so that a narrow terminal holds it."""
    names = [str(case["name"]) for case in cases]
    figures = [f for f in dict.fromkeys(f for case in cases for f in case) if f != "name" and not _folded(f, cases)]
    rows = [[_cell(case, figure) for case in cases] for figure in figures]
    if len(names) >= len(figures):
        heads, tops, rows = names, figures, [list(column) for column in zip(*rows, strict=True)]
    else:
        heads, tops = figures, names
    shown = Table(box=None, padding=(0, 1), header_style="dim")
    shown.add_column("")
    for top in tops:
        shown.add_column(top, justify="right")
    for head, row in zip(heads, rows, strict=True):
        shown.add_row(head, *row)
    return shown


def _folded(figure: str, cases: Sequence[Case]) -> bool:
    """Whether a figure is shown behind the median it belongs to."""
    return figure.endswith(("_min", "_max")) and any(figure[:-4] in case for case in cases)


def _cell(case: Case, figure: str) -> str:
    """A value, with its spread where it has one: "812.4 (799.1..820)"."""
    low, high = case.get(f"{figure}_min"), case.get(f"{figure}_max")
    if low is None or high is None:
        return _word(case.get(figure))
    return f"{_word(case.get(figure))} ({_word(low)}..{_word(high)})"


def _word(value: Value) -> str:
    """Four digits that count: 0.00001234 is 1.234e-05, 12345.6 is 12,346."""
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def machine() -> dict[str, Value]:
    """What the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": installed("torch"),
        "transformers": installed("transformers"),
    }


def _cpu() -> str:
    """The processor's own name where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def installed(package: str) -> str | None:
    """The version of a package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit(root: Path = ROOT) -> str | None:
    """The commit of the repository at `root`; None for an installed package, or without git."""
    try:
        words = ["git", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    top, head = done.stdout.split("\n")[:2]
    return head if Path(top).resolve() == root.resolve() else None
