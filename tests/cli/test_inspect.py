"""`turnwise inspect` on a run that was really played, as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broken import forgetful
from turnwise.cli.main import main
from turnwise.loop import train
from turnwise.reporter import Silent
from turnwise.runs import RunFolder, rollouts
from turnwise.types import BreakKind

PROBE = (
    "import sys; from turnwise.cli.main import main; code = main(); "
    "print([m for m in ('torch', 'transformers', 'renderers') if m in sys.modules], code)"
)


class Noted(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def told() -> Noted:
    return Noted()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, told: Noted) -> Path:
    """A run of two steps, every prefix of which breaks; the second step's tokens are exported."""
    out = tmp_path_factory.mktemp("played")
    train(forgetful(out), told)
    return out / "run"


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["inspect", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_every_step_counts_its_turns_by_how_they_continue(played):
    for line in RunFolder.open(played).metrics()[1:]:
        found = {kind: line[f"samples/prefix_mismatch/{kind}"] for kind in BreakKind}
        assert found == {**dict.fromkeys(BreakKind, 0.0), BreakKind.THINKING_STRIPPED: 8.0}
        assert (line["samples/turns"], line["samples/branches"] > 8) == (12.0, True)


def test_the_run_warns_once_with_cause_and_mend(played, told):
    (event,) = [e for e in RunFolder.open(played).events() if e["kind"] == "warning"]
    assert (event["prefix"], told.notes) == ("thinking_stripped", [event["text"]])
    assert "100% of turns" in event["text"] and "choose a renderer that keeps it" in event["text"]


def test_a_summary_fits_one_screen_and_names_what_is_wrong(capsys, played):
    code, out, err = said(capsys, played)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) < 40
    for part in ("step 2 of 2", "reward/mean", "thinking_stripped   16", "tokens_eligible", "done", "warning: 100%"):
        assert part in out


def test_every_break_shows_where_and_what_differs(capsys, played):
    code, out, _ = said(capsys, played, "--breaks", "--step", 2, "--trajectory", 1)
    lines = out.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("step 2, trajectory 1, turn 1 (main)"))
    turns = rollouts.load(RunFolder.open(played).rollout(2))[1].turns
    assert (
        code == 0 and f"thinking_stripped at token {len(turns[0].prompt_ids)}, where it leaves turn 0" in lines[first]
    )
    assert "assistant⏎»<think>hm</think>" in lines[first + 1]
    assert "»<think>" not in lines[first + 2] and "assistant⏎»" in lines[first + 2]
    assert sum(line.startswith("step ") for line in lines) == 2
    assert any(line.split() == ["thinking_stripped", "8", "100.0%"] for line in lines)


def test_a_long_list_is_cut_and_says_so(capsys, played):
    _, out, _ = said(capsys, played, "--breaks", "--limit", 3)
    assert sum(line.startswith("step ") for line in out.splitlines()) == 3
    assert out.rstrip().endswith("13 more; show them with --limit 16")


def test_tokens_of_an_exported_step_have_the_trainer_s_numbers(capsys, played):
    code, out, _ = said(capsys, played, "--tokens", "--trajectory", 3)
    lines = out.splitlines()
    assert (code, lines[0]) == (
        0,
        "step 2, trajectory 3, group 1, sibling 1, temperature 1, version 2, weight 1",
    )
    assert all(title in lines[1] for title in ("sampler", "trainer", "ratio", "advantage", "entropy", "masked high"))
    sampled = [line.split() for line in lines if " sampled " in line]
    trajectory = rollouts.load(RunFolder.open(played).rollout(2))[3]
    assert len(sampled) == trajectory.sampled_tokens
    assert {words[3] for words in sampled} == {"assistant"} and {words[2] for words in sampled} == {"1", "3", "4"}


def test_roles_have_colours_and_sampled_tokens_stand_out(capsys, played, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    _, out, _ = said(capsys, played, "--tokens")
    (sampled,) = {line[:5] for line in out.splitlines() if "sampled" in line and "␣" in line}
    (context,) = {line[:5] for line in out.splitlines() if "context" in line and "␣" in line}
    assert (sampled, context) == ("\x1b[1m ", "\x1b[2m ")
    assert all(f"\x1b[2;{colour}m" in out for colour in (35, 36, 32)) and "\x1b[1;32massistant" in out


def test_tokens_of_a_step_without_an_export_have_the_sampler_s(capsys, played):
    code, out, _ = said(capsys, played, "--tokens", "--step", 1)
    heading = out.splitlines()[1]
    assert (code, "sampler" in heading, "trainer" in heading) == (0, True, False)
    assert "<|im_start|>" in out


def test_what_is_shown_can_be_written_to_a_file(capsys, played, tmp_path):
    found = {}
    for view in ([], ["--breaks"], ["--tokens"]):
        assert said(capsys, played, *view, "--json", tmp_path / "x" / "shown.json")[0] == 0
        found["".join(view)] = json.loads((tmp_path / "x" / "shown.json").read_text())
    assert found[""]["breaks"]["thinking_stripped"] == len(found["--breaks"]["breaks"]) == 16
    assert found["--breaks"]["breaks"][0]["prefix"]["kind"] == "thinking_stripped"
    assert {row["kind"] for row in found["--tokens"]} == {"context", "sampled"}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ([], 2, "found no run to inspect; expected its folder first"),
        (["--breaks"], 2, "found no run to inspect"),
        (["RUN", "--breaks", "--tokens"], 2, "found --breaks and --tokens; expected one of them"),
        (["nowhere"], 1, "nowhere holds no run: expected a config.toml in it"),
        (["RUN", "--breaks", "--step", "9"], 1, "found no rollouts of step 9"),
        (["RUN", "--tokens", "--step", "9"], 1, "expected one of steps 1 to 2"),
        (["RUN", "--tokens", "--trajectory", "4"], 1, "found 4 trajectories in step 2, expected one numbered 4"),
        (["RUN", "--steps", "1"], 2, "did you mean --step?"),
    ],
)
def test_mistakes_are_named_with_their_mend(capsys, played, words, code, text):
    found, out, err = said(capsys, *(played if word == "RUN" else word for word in words))
    assert (found, out) == (code, "")
    assert err.startswith("turnwise inspect: ") and text in err


def test_a_run_without_a_step_has_a_summary_and_no_breaks(capsys, tmp_path):
    RunFolder.create(tmp_path / "new", 'name = "new"\n')
    assert said(capsys, tmp_path / "new")[0] == 0
    for view in ("--breaks", "--tokens"):
        code, _, err = said(capsys, tmp_path / "new", view)
        assert (code, "the run has not finished a step yet" in err) == (1, True)


@pytest.mark.parametrize("view", [[], ["--breaks"], ["--tokens"], ["--help"]])
def test_an_answer_needs_no_torch(played, view):
    words = [sys.executable, "-c", PROBE, "inspect", str(played), *view]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
