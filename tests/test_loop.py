"""Whole runs of a few steps: what they leave behind, and that a run cut anywhere goes on as if it had not been."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from small import Cut, Power, config, lines, numbers, weights
from turnwise.config import load
from turnwise.config.run import EnvConfig
from turnwise.errors import RunError
from turnwise.loop import train
from turnwise.reporter import Silent
from turnwise.runs import RunFolder, checkpoint, rollouts
from turnwise.testing import tiny_model
from turnwise.types import Message, Observation, Task

STEPS = 5


class Stopper(Silent):
    """Asks for an end after a step."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.stop = threading.Event()

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        if step == self.after:
            self.stop.set()


class Broken:
    """An environment that never starts."""

    @staticmethod
    def tasks() -> list[Task]:
        return [Task(f"broken/{n}") for n in range(50)]

    async def start(self, task: Task) -> Observation:
        raise OSError("no machine")

    async def step(self, message: Message) -> Observation:
        raise AssertionError("never started")

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder above an undisturbed run of five steps."""
    out = tmp_path_factory.mktemp("whole")
    train(config(out, steps=STEPS))
    return out


def test_a_run_leaves_one_line_a_step_and_learns_in_each(whole: Path) -> None:
    found = lines(whole)
    assert [line["step"] for line in found] == [0, 1, 2, 3, 4, 5]
    assert [line["step"] for line in found if "eval/success" in line] == [0, 2, 4, 5]
    assert all(line["samples/tokens_trained"] > 0 and line["optim/grad_norm"] > 0 for line in found[1:])
    assert all(line["mismatch/max"] < 1e-4 for line in found[1:])


def test_every_step_s_account_of_tokens_adds_up(whole: Path) -> None:
    for line in lines(whole)[1:]:
        dropped = [n for name, n in line.items() if name.startswith("samples/dropped/")]
        assert line["samples/tokens_eligible"] == line["samples/tokens_trained"] + sum(dropped)


def test_rollouts_hold_the_trajectories_that_the_metrics_are_about(whole: Path) -> None:
    folder = RunFolder.open(whole / "run")
    assert [p.name for p in sorted(folder.rollouts.iterdir())] == [f"step-{n:06d}.parquet" for n in range(1, 6)]
    for line in lines(whole)[1:]:
        found = rollouts.load(folder.rollout(line["step"]))
        assert [(t.group, t.sibling) for t in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert line["reward/mean"] == pytest.approx(sum(t.reward for t in found) / 4)
        assert line["samples/tokens_eligible"] == sum(t.sampled_tokens for t in found)
        versions = {int(v) for t in found for turn in t.turns for v in turn.policy_versions}
        assert versions == {2 * (line["step"] - 1)}


def test_checkpoints_summary_report_and_config_agree_with_the_metrics(whole: Path) -> None:
    folder, found = RunFolder.open(whole / "run"), lines(whole)
    newest = checkpoint.newest(folder)
    assert newest is not None and newest[0] == STEPS
    assert sorted(p.name for p in folder.checkpoints.iterdir()) == ["step-000004", "step-000005"]
    summary = json.loads((folder.path / "summary.json").read_text())
    del summary["seconds"]
    before, after = found[0]["eval/success"], found[-1]["eval/success"]
    assert summary == {"seed": 1, "steps": STEPS, "before": before, "after": after, "n": 4}
    assert (folder.path / "report.html").stat().st_size > 1000
    assert load(["@", str(folder.config)]) == config(whole, steps=STEPS)
    assert [e["kind"] for e in folder.events()] == ["start", "finish"]


def test_two_runs_with_one_seed_are_equal_and_another_seed_differs(whole: Path, tmp_path: Path) -> None:
    train(config(tmp_path / "same", steps=STEPS))
    train(config(tmp_path / "other", steps=STEPS, seed=2))
    assert numbers(tmp_path / "same") == numbers(whole) != numbers(tmp_path / "other")


def test_a_run_that_was_asked_to_stop_saves_and_goes_on_with_the_same_numbers(whole: Path, tmp_path: Path) -> None:
    asked = Stopper(after=3)
    stopped = train(config(tmp_path, steps=STEPS), asked, stop=asked.stop)
    assert (stopped["steps"], len(lines(tmp_path))) == (3, 4)
    done = train(config(tmp_path, steps=STEPS), resume=True)
    assert (done["steps"], numbers(tmp_path)) == (STEPS, numbers(whole))
    kinds = [e["kind"] for e in RunFolder.open(tmp_path / "run").events()]
    assert kinds == ["start", "stop", "resume", "rewind", "finish"]


@pytest.mark.parametrize("cut", [0, 4, 7, 13, 16, 23, 30, 37, 51])
def test_a_run_that_broke_off_anywhere_goes_on_with_the_same_numbers(whole: Path, tmp_path: Path, cut: int) -> None:
    with pytest.raises(Cut):
        train(config(tmp_path, steps=STEPS), Power(cut))
    train(config(tmp_path, steps=STEPS), resume=True)
    assert numbers(tmp_path) == numbers(whole)
    assert weights(tmp_path, STEPS) == weights(whole, STEPS)


def test_a_finished_run_that_is_resumed_changes_nothing(tmp_path: Path) -> None:
    summary = train(config(tmp_path, steps=1))
    before = lines(tmp_path)
    again = train(config(tmp_path, steps=1), resume=True)
    assert lines(tmp_path) == before
    assert {**summary, "seconds": 0} == {**again, "seconds": 0}


def test_a_new_run_where_one_stands_and_a_resume_where_none_does_are_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="already holds a run"):
        train(config(whole))
    with pytest.raises(RunError, match="holds no run"):
        train(config(tmp_path), resume=True)


def test_a_run_whose_environment_always_fails_ends_with_its_error_and_a_record_of_it(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "model")
    env = EnvConfig(id=f"{__file__}:Broken", retries=0, group=2)
    with pytest.raises(RunError, match=r"all 4 episodes of a batch failed.*no machine"):
        train(config(tmp_path, env=env, model=str(tmp_path / "model")))
    event = RunFolder.open(tmp_path / "run").events()[-1]
    del event["time"]
    error = "OSError('no machine')"
    assert event == {"kind": "episode_failed", "stage": "held-out", "step": -1, "error": error, "times": 4}
