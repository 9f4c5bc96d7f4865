"""`turnwise bench` as a user meets it, on the tiny model and without peers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from turnwise.bench.measure import Measured
from turnwise.bench.train import FIGURES, NAMES, case, view
from turnwise.cli.bench import BENCHES, usage
from turnwise.cli.main import main

SMALL = {"model": "tiny", "groups": 2, "siblings": 2, "turns": 2, "max-tokens": 6, "repeats": 2, "threads": 1}
PROBE = "import sys; from turnwise.cli.main import main; main(); print({'torch', 'rich'} & {*sys.modules})"


def measured(loss: float, seconds: list[float]) -> Measured:
    counts = {"trained": 100, "forwarded": 300, "projected": 90, "loss": loss, "grad_norm": 2.0}
    rounds = [{**counts, "seconds": s} for s in seconds]
    return Measured(warmup=rounds[:1], repeats=rounds[1:], peak_mb=500.0)


def test_it_measures_writes_and_prints(capsys, tmp_path):
    words = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]
    assert main(["bench", "train", *words, "--no-trl", "--json", str(tmp_path / "b.json")]) == 0
    found = json.loads((tmp_path / "b.json").read_text())
    (figures,) = found["cases"]
    assert figures["turnwise_trained"] == figures["per_turn_trained"] > 0
    assert figures["per_turn_loss_rel_diff"] < 1e-5
    assert {key for key, value in figures.items() if value is None} == {
        *(f"trl_{figure}" for figure in (*FIGURES, "version")),
        *("vs_trl", "loss_rel_diff", "grad_norm_rel_diff"),
    }
    assert "per_turn" in capsys.readouterr().out


def test_figures_come_from_medians_and_the_first_step():
    found = case("m", {"turnwise": measured(-0.5, [9, 1, 4, 2]), "trl": measured(-0.6, [9, 5, 4, 8])})
    expected = {"tok_s": 50.0, "tok_s_min": 25.0, "tok_s_max": 100.0, "peak_mb": 500.0}
    assert {name: found[f"turnwise_{name}"] for name in expected} == expected
    assert (found["trl_tok_s"], found["vs_trl"], found["loss_rel_diff"]) == (20.0, 2.5, pytest.approx(0.2))
    assert (found["per_turn_tok_s"], found["vs_per_turn"], found["grad_norm_rel_diff"]) == (None, None, 0.0)


def test_the_terminal_has_a_column_a_variant():
    found = view([case("m", {"turnwise": measured(-0.5, [9, 1]), "trl": measured(-0.6, [9, 5])})])
    assert [column["name"] for column in found] == [*NAMES]
    assert [column["slower"] for column in found] == [None, None, 5.0]


def test_bench_help_lists_the_benchmarks(capsys):
    assert (main(["bench", "--help"]), capsys.readouterr().out) == (0, usage() + "\n")


def test_an_unknown_benchmark_names_the_nearest(capsys):
    code = main(["bench", "trian"])
    names = ", ".join(BENCHES)
    expected = f"turnwise bench: found benchmark 'trian'; expected one of {names}; did you mean train?\n"
    assert (code, capsys.readouterr().err) == (2, expected)


def test_the_help_of_a_benchmark_imports_nothing_heavy():
    words = [sys.executable, "-c", PROBE, "bench", "train", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
