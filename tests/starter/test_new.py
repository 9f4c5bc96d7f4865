"""`turnwise new env NAME` writes an environment that works as it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from turnwise.cli.main import main
from turnwise.config import load
from turnwise.loop import train
from turnwise.starter import title

FILES = ["lost_things.py", "lost_things.toml", "test_lost_things.py"]


@pytest.fixture
def written(tmp_path, monkeypatch, capsys):
    """A folder with the environment in it, to which the process has changed; and what was said."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "env", "lost_things"]) == 0
    return tmp_path, capsys.readouterr().out


def test_three_files_are_written_and_the_next_commands_told(written):
    folder, out = written
    assert sorted(path.name for path in (folder / "lost_things").iterdir()) == FILES
    assert not [path for path in (folder / "lost_things").iterdir() if "tarter" in path.read_text()]
    assert [line.strip() for line in out.splitlines()[4::2]] == [
        "python -m pytest lost_things",
        "turnwise doctor --env lost_things/lost_things.py:LostThings",
        "turnwise train @ lost_things/lost_things.toml",
    ]


def test_its_test_passes(written):
    folder, _ = written
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "lost_things"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


@pytest.mark.usefixtures("written")
def test_its_config_trains_and_learns():
    small = ["--train.steps", "20", "--train.threads", "1", "--eval.tasks", "40", "--tiny.width", "64"]
    summary = train(load(["@", "lost_things/lost_things.toml", *small]))
    assert (summary["steps"], summary["n"]) == (20, 40)
    assert summary["after"] > summary["before"]


def test_the_doctor_finds_it_exact(written, capsys):
    words = ["--tasks", "2", "--families", "chatml", "forgets", "--tiny.width", "32"]
    assert main(["doctor", "--env", "lost_things/lost_things.py:LostThings", *words]) == 0
    assert "is exact" in capsys.readouterr().out


def test_a_folder_that_is_there_is_left_alone(written, capsys):
    folder, _ = written
    (folder / "lost_things" / "lost_things.py").write_text("mine")
    assert main(["new", "env", "lost_things"]) == 2
    assert "expected nothing there" in capsys.readouterr().err
    assert (folder / "lost_things" / "lost_things.py").read_text() == "mine"


@pytest.mark.parametrize("words", [[], ["env"], ["model", "x"], ["env", "a", "b"], ["env", "--force"]])
def test_other_words_are_told_what_was_expected(words, capsys):
    assert main(["new", *words]) == 2
    assert "expected `turnwise new env NAME`" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Boxes", "my-env", "9lives", "a/b", ".."])
def test_a_name_that_is_no_module_is_refused(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "env", name]) == 2
    assert "small letters, digits and underscores" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_titles_are_camel_case():
    assert [title(name) for name in ("boxes", "lost_things", "a1_b")] == ["Boxes", "LostThings", "A1B"]
