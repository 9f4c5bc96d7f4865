"""Supervised runs: the loss falls, a cut run goes on as if it had not been, and training starts from the result."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch
from chats import PLAIN, sums, write

from small import Cut, Power
from small import config as small
from turnwise import runs
from turnwise.cli.main import main
from turnwise.config import load
from turnwise.config.run import CheckpointConfig, EnvConfig, TinyConfig
from turnwise.config.sft import SftEvalConfig, SftRunConfig, SftTrainConfig
from turnwise.errors import ConfigError, RunError
from turnwise.loop import train
from turnwise.reporter import Silent
from turnwise.sft import warm
from turnwise.sft.parts import assemble
from turnwise.sft.warm import Course
from turnwise.train import batch

STEPS = 5
CLOCKS = ("time/", "perf/")


def config(out, **more):
    data = out / "data.jsonl"
    fields = {
        "name": "run",
        "out": str(out),
        "seed": 1,
        "data": [str(data) if data.exists() else sums(data)],
        "holdout_fraction": 0.3,
        "model": "tiny",
        "tiny": TinyConfig(width=32, layers=1),
        "train": SftTrainConfig(steps=STEPS, tasks=6, updates=2, lr=1e-2, threads=1),
        "eval": SftEvalConfig(every=2),
        "checkpoint": CheckpointConfig(every=2),
    }
    return SftRunConfig(**(fields | more))


def lines(out):
    found = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith(CLOCKS)} for line in found]


def weights(out):
    return (out / "run" / "checkpoints" / f"step-{STEPS:06d}" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One folder for all runs here, so that their configs name the same file."""
    return sums(tmp_path_factory.mktemp("data") / "data.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    """The folder above an undisturbed run."""
    out = tmp_path_factory.mktemp("whole")
    warm(config(out, data=[data]))
    return out


def test_the_loss_falls_on_conversations_that_are_read_and_on_held_out_ones(whole):
    found = lines(whole)
    assert [line["step"] for line in found] == [*range(STEPS + 1)]
    assert [line["step"] for line in found if "eval/loss" in line] == [0, 2, 4, 5]
    assert found[-1]["loss/total"] < found[1]["loss/total"] / 2
    assert found[-1]["eval/loss"] < found[0]["eval/loss"] / 2
    summary = json.loads((whole / "run" / "summary.json").read_text())
    assert (summary["before"], summary["after"]) == (found[0]["eval/loss"], found[-1]["eval/loss"])


def test_every_token_of_the_assistant_is_trained_and_siblings_share_what_they_have_in_common(whole):
    for line in lines(whole)[1:]:
        dropped = sum(n for name, n in line.items() if name.startswith("samples/dropped/"))
        assert line["samples/tokens_trained"] == line["samples/tokens_eligible"] > 0 == dropped
        assert not any(name.startswith(("mismatch/", "policy/ratio", "staleness/")) for name in line)
    assert max(line["samples/merge_ratio"] for line in lines(whole)[1:]) > 1.5


def test_the_held_out_loss_is_the_mean_of_minus_logp_over_the_assistants_tokens(tmp_path):
    none = SftEvalConfig(conversations=0)
    path = write(tmp_path / "data.jsonl", [PLAIN])
    parts = assemble(config(tmp_path, data=[path], holdout_fraction=0.0, eval=none))
    found = parts.conversation(next(parts.tasks.train()))
    total = 0.0
    for turn in found.turns:
        ids = torch.from_numpy(turn.ids).long()[None]
        with torch.no_grad():
            logp = parts.policy.model(input_ids=ids).logits[0].log_softmax(-1)
        start = len(turn.prompt_ids)
        total -= float(sum(logp[i - 1, ids[0, i]] for i in range(start, ids.shape[1])))
    rows, counts = batch([found], np.ones(1, np.float32), [0], parts.config.train)
    assert counts["tokens_trained"] == found.sampled_tokens == sum(len(r.entries) for r in rows)
    folder = runs.RunFolder.create(tmp_path / "run", "")
    course = Course(parts, folder, Silent(), threading.Event(), 0.0)
    assert course._loss([found]) == (pytest.approx(total, abs=1e-3), found.sampled_tokens)


@pytest.mark.parametrize("cut", [0, 3, 6, 11, 15, 18])
def test_a_run_that_broke_off_anywhere_goes_on_with_the_same_numbers(whole, tmp_path, data, cut):
    with pytest.raises(Cut):
        warm(config(tmp_path, data=[data]), Power(cut))
    warm(config(tmp_path, data=[data]), resume=True)
    assert lines(tmp_path) == lines(whole)
    assert weights(tmp_path) == weights(whole)


def test_a_run_that_was_asked_to_stop_says_how_to_go_on(tmp_path, data):
    stop = threading.Event()
    stop.set()
    told: list[str] = []

    class Ear(Silent):
        def finish(self, lines):
            told.extend(lines)

    assert warm(config(tmp_path, data=[data]), Ear(), stop=stop)["steps"] == 0
    assert told[-1].startswith("stopped after step 0 of 5; go on with: turnwise sft @ ")


def test_another_config_is_refused_on_resume(whole, data):
    with pytest.raises(ConfigError, match=r"found seed 2 \(the run has 1\).*turnwise sft @"):
        warm(config(whole, data=[data], seed=2), resume=True)
    with pytest.raises(RunError, match="already holds a run"):
        warm(config(whole, data=[data]))


def test_training_starts_from_a_supervised_checkpoint(whole, tmp_path):
    place = whole / "run" / "checkpoints" / f"step-{STEPS:06d}"
    env = EnvConfig(id="recall", group=2, max_turns=2)
    env = env.model_copy(update={"sampling": env.sampling.model_copy(update={"max_tokens": 4})})
    assert train(small(tmp_path, model=str(place), env=env, steps=1))["steps"] == 1


def test_tokens_are_exported_and_the_report_shows_the_loss(tmp_path, data):
    steps = SftTrainConfig(steps=2, tasks=2, lr=1e-3, threads=1, export_tokens=2)
    warm(config(tmp_path, data=[data], train=steps))
    folder = runs.RunFolder.open(tmp_path / "run")
    table = runs.tokens.load(folder.tokens(2), 0)
    assert "trainer_logp" in table.column_names
    assert "held-out" in (folder.path / "report.html").read_text()


def test_the_command_trains_tells_and_goes_on(tmp_path, data, capsys):
    words = ["sft", "--data", data, "--out", str(tmp_path), "--model", "tiny", "--tiny.width", "32"]
    words += ["--train.steps", "2", "--train.tasks", "2", "--train.lr", "1e-2", "--holdout_fraction", "0.3"]
    assert main([*words]) == 0
    out = capsys.readouterr().out
    assert "step 0: held-out loss" in out and "train from it: turnwise train @ run.toml --model" in out
    assert "rollout s" not in out and "  entropy  " in out
    assert main(words) == 1
    assert "add --resume" in capsys.readouterr().err
    assert main([*words, "--resume", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "found no data"),
        (["--data", "x.jsonl", "--holdout_fraction", "0"], "eval.conversations 0"),
        (["--data", "x.jsonl", "--name", "a/b"], "plain folder name"),
        (["--data", "x.jsonl", "--train.lrr", "1"], "did you mean --train.lr?"),
    ],
)
def test_config_mistakes_are_told(words, expected):
    with pytest.raises(ConfigError, match="(?s).*" + expected.replace("?", r"\?").replace(".", r"\.")):
        load(words, SftRunConfig)


@pytest.mark.real
def test_smollm2_takes_a_step(tmp_path, data):
    steps = SftTrainConfig(steps=1, tasks=1, lr=1e-5)
    none = SftEvalConfig(conversations=0)
    warm(config(tmp_path, data=[data], model="smollm2", train=steps, eval=none, checkpoint=CheckpointConfig()))
    line = lines(tmp_path)[-1]
    assert line["samples/tokens_trained"] > 0 and 0 < line["loss/total"] < 10


def test_inspect_shows_a_supervised_run(whole, capsys):
    assert main(["inspect", str(whole / "run")]) == 0
    out = capsys.readouterr().out
    assert "loss/total" in out and "eval/loss" in out and "tokens_trained" in out
