"""The command line as a user meets it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from turnwise import __version__
from turnwise.cli.main import main, usage
from turnwise.config import RunConfig, dump

HEAVY = ("torch", "transformers", "numpy", "renderers", "rich")
DEMO = Path(__file__).parents[2] / "examples" / "demo.toml"
PROBE = (
    f"import sys; from turnwise.cli.main import main; code = main(); print([m for m in {HEAVY} if m in sys.modules])"
)


def said(capsys, *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    "words",
    [
        *([[word] for word in ("--help", "--version", "trian")]),
        *([[word, "--help"] for word in ("train", "inspect", "sft", "sft-data", "new", "doctor", "serve", "chat")]),
        ["doctor", "--env", "babyai", "--help"],
        ["train", "--lr", "1"],
        ["sft", "--train.lrr", "1"],
        ["sft", "--data", "there-is-none.jsonl"],
    ],
)
def test_an_answer_that_needs_no_model_imports_nothing_heavy(words):
    done = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_lists_the_commands(capsys):
    assert said(capsys, "--help") == (0, usage() + "\n", "")


def test_no_command_shows_the_help_and_fails(capsys):
    assert said(capsys) == (2, usage() + "\n", "")


def test_version_is_the_package_s(capsys):
    assert said(capsys, "--version") == (0, f"turnwise {__version__}\n", "")


def test_an_unknown_command_names_the_nearest(capsys):
    code, out, err = said(capsys, "trian")
    assert (code, out) == (2, "")
    assert err.endswith("did you mean train?\n")


def test_a_dry_run_prints_a_complete_config(capsys):
    code, out, err = said(capsys, "train", "--dry-run", "--seed", "3")
    assert (code, tomllib.loads(out), err) == (0, tomllib.loads(dump(RunConfig(seed=3))), "")


def test_a_config_mistake_is_plain_text_and_exit_code_2(capsys):
    expected = "turnwise train: a mistake in the config:\n  --lr: unknown flag; did you mean --train.lr?\n"
    assert said(capsys, "train", "--lr", "1") == (2, "", expected)


def test_a_folder_that_holds_a_run_is_refused_without_resume(capsys, tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "config.toml").touch()
    expected = (
        f"turnwise train: found a run in {tmp_path / 'first'}; expected none: "
        "add --resume to go on with it, or choose another --name\n"
    )
    assert said(capsys, "train", "--out", str(tmp_path), "--name", "first") == (1, "", expected)


def test_resuming_a_run_that_is_not_there_is_refused(capsys, tmp_path):
    code, out, err = said(capsys, "train", "--resume", "--out", str(tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith(f"turnwise train: found no run in {tmp_path / 'run'}; expected one to resume")


def test_the_demo_s_config_is_valid(capsys):
    code, out, _ = said(capsys, "train", "@", str(DEMO), "--dry-run")
    assert (code, tomllib.loads(out)["name"]) == (0, "demo")


def test_the_help_of_train_names_every_key(capsys):
    from turnwise.config.keys import parts

    _, out, _ = said(capsys, "train", "--help")
    assert [k.name for p in parts(RunConfig) for k in p.keys if f"--{k.name} " not in out] == []
