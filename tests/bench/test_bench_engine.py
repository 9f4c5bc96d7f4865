"""`turnwise bench engine` on the tiny model, beside `generate` and without vLLM."""

from __future__ import annotations

import json

import pytest

from turnwise.bench.engine import FIGURES, NAMES, Options, case, run
from turnwise.bench.measure import Measured
from turnwise.cli.main import main
from turnwise.errors import ConfigError

SMALL = {"model": "tiny", "tokens": 3, "prompt": 5, "conversations": 2, "turns": 2, "read": 4, "written": 3}
MORE = {"repeats": 1, "warmup": 0, "threads": 1, "vllm": "nowhere"}


def measured(tokens: int, seconds: list[float]) -> Measured:
    return Measured(repeats=[{"tokens": tokens, "seconds": s} for s in seconds], peak_mb=500.0)


def test_it_measures_every_case_and_leaves_null_what_is_not_there(tmp_path, capsys):
    words = [word for key, value in (SMALL | MORE).items() for word in (f"--{key}", str(value))]
    path = tmp_path / "engine.json"
    assert main(["bench", "engine", *words, "--batches", "2", "--dtypes", "bfloat16", "--json", str(path)]) == 0
    cases = json.loads(path.read_text())["cases"]
    assert [c["name"] for c in cases] == ["decode_2_bf16", "conversations_bf16"]
    assert all(c["turnwise_tok_s"] > 0 and c["generate_tok_s"] > 0 and c["vs_generate"] > 0 for c in cases)
    assert all(c[f"vllm_{figure}"] is None for c in cases for figure in FIGURES)
    assert "found no vLLM in nowhere" in capsys.readouterr().err


def test_figures_are_tokens_over_median_seconds():
    found = case("decode_8", {"turnwise": measured(100, [1, 2, 4]), "generate": measured(100, [10, 5, 4])})
    expected = {"tok_s": 50.0, "tok_s_min": 25.0, "tok_s_max": 100.0, "peak_mb": 500.0}
    assert {name: found[f"turnwise_{name}"] for name in expected} == expected
    assert (found["generate_tok_s"], found["vs_generate"], found["vs_vllm"]) == (20.0, 2.5, None)
    assert {name for name in found if name.startswith(NAMES)} == {f"{n}_{f}" for n in NAMES for f in FIGURES}


def test_nothing_to_measure_is_said():
    with pytest.raises(ConfigError, match="found no batches and no conversations"):
        run(Options(model="tiny", batches=[], conversations=0, vllm="nowhere"))
