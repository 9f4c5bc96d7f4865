"""A run that is killed at random moments, again and again, ends with the numbers of one that was left alone."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from small import config, numbers, weights
from turnwise.cli.main import main
from turnwise.config import dump
from turnwise.loop import train
from turnwise.runs import RunFolder

STEPS = 16
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder above an undisturbed run."""
    out = tmp_path_factory.mktemp("whole")
    train(config(out, steps=STEPS))
    return out


def words(out: Path) -> list[str]:
    """The command line that starts the run, or goes on with it where it was started."""
    out.mkdir(exist_ok=True)
    (out / "run.toml").write_text(dump(config(out, steps=STEPS)))
    begun = (out / "run" / "config.toml").exists()
    return ["train", "@", str(out / "run.toml"), "--quiet", *(["--resume"] if begun else [])]


def logged(out: Path) -> int:
    """How many lines of metrics stand on the disk."""
    path = out / "run" / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < until, f"nothing happened for {PATIENCE_S} s"
        time.sleep(0.001)


def test_a_run_killed_again_and_again_ends_with_the_numbers_of_one_left_alone(whole: Path, tmp_path: Path) -> None:
    draw, fresh = random.Random(1), multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload(["turnwise.loop", "turnwise.envs.babyai"])
    for line in sorted(draw.choices(range(STEPS - 6), k=10)):
        life = fresh.Process(target=main, args=(words(tmp_path),))
        life.start()
        wait(lambda line=line: logged(tmp_path) >= line)  # type: ignore[misc]
        time.sleep(draw.random() / 10)
        life.kill()
        life.join()
        assert life.exitcode == -9
    assert main(words(tmp_path)) == 0
    assert numbers(tmp_path) == numbers(whole)
    assert weights(tmp_path, STEPS) == weights(whole, STEPS)
    kinds = [event["kind"] for event in RunFolder.open(tmp_path / "run").events()]
    assert kinds.count("resume") >= 3 and kinds[-1] == "finish"


def test_the_command_itself_killed_once_goes_on_with_resume(whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "turnwise.cli.main"]
    with subprocess.Popen([*command, *words(tmp_path)]) as first:
        wait(lambda: logged(tmp_path) > 2)
        first.kill()
    assert first.returncode == -9
    subprocess.run([*command, *words(tmp_path)], check=True, capture_output=True, timeout=PATIENCE_S)
    assert numbers(tmp_path) == numbers(whole)
