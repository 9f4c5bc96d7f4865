"""Figures on the terminal and in the file."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from turnwise.bench import report
from turnwise.errors import RunError

CASE = {"name": "a", "tok_s": 812.44, "tok_s_min": 799.1, "tok_s_max": 820.0, "peak_mb": None, "kind": "x"}


def text(cases) -> list[list[str]]:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(report.table(cases))
    return [line.split() for line in captured.get().splitlines()]


def test_the_file_has_these_names(tmp_path):
    report.write(tmp_path / "new" / "file.json", "turnwise bench x", [CASE])
    found = json.loads((tmp_path / "new" / "file.json").read_text())
    assert (list(found), found["command"], found["cases"]) == (
        ["command", "commit", "machine", "cases"],
        "turnwise bench x",
        [CASE],
    )


def test_the_machine_says_what_a_figure_depends_on():
    found = report.machine()
    assert list(found) == ["cpu", "cores", "memory_gb", "system", "python", "torch", "transformers"]
    assert (found["python"], None in found.values()) == (platform.python_version(), False)


def test_the_commit_is_that_of_the_repository():
    root = Path(__file__).parents[2]
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    assert report.commit() == (done.stdout.strip() or None)


def test_a_folder_outside_a_repository_has_no_commit(tmp_path):
    assert report.commit(tmp_path) is None


def test_a_folder_inside_a_repository_of_something_else_has_no_commit():
    assert report.commit(Path(report.__file__).parent) is None


def test_many_figures_go_down_with_their_spread_and_a_dash_for_what_was_not_measured():
    assert text([CASE]) == [["a"], ["tok_s", "812.4", "(799.1..820)"], ["peak_mb", "-"], ["kind", "x"]]


def test_many_cases_go_down():
    cases = [{"name": name, "n": n} for name, n in [("a", 1.0), ("b", 123456.0)]]
    assert text(cases) == [["n"], ["a", "1"], ["b", "123,456"]]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(RunError, match="which cannot be written: Is a directory"):
        report.write(tmp_path, "turnwise bench x", [CASE])
