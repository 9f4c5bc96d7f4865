"""Checkpoints are complete or absent, also when the process is killed while it saves."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turnwise.errors import RunError
from turnwise.runs import RunFolder, checkpoint

SAVE_FOREVER = """
import sys
from pathlib import Path
from turnwise.runs import RunFolder, checkpoint

folder = RunFolder.open(Path(sys.argv[1]))
found = checkpoint.newest(folder)
step = found[0] if found else 0

def write(path):
    (path / "optimizer").mkdir()
    for name in ("weights", "optimizer/state", "loop"):
        (path / name).write_bytes(step.to_bytes(4, "big") * 5000)

print("saving", flush=True)
while True:
    step += 1
    checkpoint.save(folder, step, write, keep=2)
"""


def write_weights(path: Path) -> None:
    (path / "weights").write_text("w")


def names(folder: RunFolder) -> list[str]:
    return sorted(p.name for p in folder.checkpoints.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "")


def killed_while_saving(folder: RunFolder, after_s: float) -> int:
    """Start a process that saves without end, kill it, and return its id."""
    command = [sys.executable, "-c", SAVE_FOREVER, str(folder.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"saving\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    return process.pid


def test_whatever_a_kill_leaves_the_newest_checkpoint_is_whole(folder):
    draw = random.Random(0)
    steps = [0]
    for _ in range(12):
        killed_while_saving(folder, draw.uniform(0.0, 0.05))
        step, path = checkpoint.newest(folder) or (0, None)
        assert step >= steps[-1]
        steps.append(step)
        if path:
            files = [path / name for name in ("weights", "optimizer/state", "loop")]
            assert [f.read_bytes() for f in files] == [step.to_bytes(4, "big") * 5000] * 3
    assert steps[-1] > 0
    checkpoint.save(folder, steps[-1] + 1, write_weights, keep=2)
    assert not [name for name in names(folder) if not name.startswith("step-")]
    assert len(names(folder)) <= 2


def test_a_folder_without_checkpoints_has_no_newest(folder):
    assert checkpoint.newest(folder) is None


def test_only_the_newest_checkpoints_are_kept(folder):
    for step in (5, 10, 15):
        place = checkpoint.save(folder, step, write_weights, keep=2)
    assert names(folder) == ["step-000010", "step-000015"]
    assert checkpoint.newest(folder) == (15, place)


def test_a_checkpoint_that_lost_a_file_is_not_complete(folder):
    first = checkpoint.save(folder, 1, write_weights, keep=2)
    second = checkpoint.save(folder, 2, write_weights, keep=2)
    (second / "weights").write_text("")
    assert checkpoint.newest(folder) == (1, first)


def test_a_folder_without_the_seal_is_ignored(folder):
    (folder.checkpoints / "step-000009").mkdir()
    (folder.checkpoints / "step-000009" / "weights").write_text("w")
    assert checkpoint.newest(folder) is None


def test_a_write_that_fails_leaves_no_checkpoint_and_is_cleared_by_the_next(folder):
    def fail(path: Path) -> None:
        (path / "weights").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(folder, 1, fail, keep=1)
    assert checkpoint.newest(folder) is None
    checkpoint.save(folder, 2, write_weights, keep=1)
    assert names(folder) == ["step-000002"]


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(folder):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (folder.checkpoints / f".tmp-step-000001-{dead.pid}").mkdir()
    (folder.checkpoints / f".tmp-step-000001-{os.getppid()}").mkdir()
    checkpoint.save(folder, 2, write_weights, keep=1)
    assert names(folder) == [f".tmp-step-000001-{os.getppid()}", "step-000002"]


def test_a_step_saved_again_is_replaced(folder):
    checkpoint.save(folder, 1, write_weights, keep=1)
    place = checkpoint.save(folder, 1, lambda path: (path / "other").touch(), keep=1)
    assert sorted(p.name for p in place.iterdir()) == ["complete.json", "other"]
    assert names(folder) == ["step-000001"]


def test_keeping_none_is_refused(folder):
    with pytest.raises(RunError, match="found keep 0, expected at least 1"):
        checkpoint.save(folder, 1, write_weights, keep=0)
