"""Whole runs that condense: every source of summaries, the columns asked for, and a resume that changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from turnwise.config import RunConfig
from turnwise.loop import train

SHELF = f"{Path(__file__).parent / 'shelf.py'}:Shelf"


def config(out: Path, steps: int = 2, **condense: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "run",
            "out": str(out),
            "device": "cpu",
            "tiny": {"layers": 1, "width": 16, "heads": 2, "vocab": 300, "context": 2048},
            "env": {
                "id": SHELF,
                "args": {"passages": 3, "turns": 2},
                "group": 2,
                "max_turns": 2,
                "save_columns": ["asked", "nowhere"],
                "sampling": {"max_tokens": 3},
            },
            "rollout": {
                "condense": {"max_context_tokens": 60, "min_tokens": 4, "extract": False, **condense},
            },
            "advantage": {"type": "none"},
            "loss": {"type": "sft"},
            "train": {"steps": steps, "tasks": 2},
            "eval": {"tasks": 2},
            "checkpoint": {"every": 1},
        }
    )


def lines(out: Path) -> list[dict[str, float]]:
    found = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    timed = ("time/", "perf/")
    return [{k: v for k, v in line.items() if not k.startswith(timed) and not k.endswith("_s")} for line in found]


@pytest.mark.parametrize(
    ("condense", "masked"),
    [
        ({"type": "keywords"}, False),
        ({"type": "model"}, False),
        ({"type": "model", "train_summaries": False}, True),
        ({"type": "model", "model": {"source": "start"}}, False),
    ],
)
def test_a_run_condenses_and_every_token_is_trained_or_counted(tmp_path, condense, masked):
    train(config(tmp_path, **condense))
    last = lines(tmp_path)[-1]
    dropped = sum(n for name, n in last.items() if name.startswith("samples/dropped/"))
    assert last["condense/chunks"] > 0 and last["eval/condense/chunks"] > 0
    assert last["samples/tokens_eligible"] == last["samples/tokens_trained"] + dropped
    assert (last.get("samples/dropped/masked", 0.0) > 0) == masked
    policy_writes = condense.get("model", {}).get("source") != "start" and condense["type"] == "model"
    assert (last["condense/summaries"] > 0) == policy_writes
    table = pq.read_table(tmp_path / "run" / "rollouts" / "step-000002.parquet")
    assert all(table["asked"].to_pylist()) and set(table["nowhere"].to_pylist()) == {None}
    events = (tmp_path / "run" / "events.jsonl").read_text()
    assert events.count("no episode of this step has 'nowhere'") == 1


def test_a_run_that_was_stopped_and_resumed_has_the_numbers_it_would_have_had(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(config(whole, type="model"))
    train(config(parts, steps=1, type="model"))
    train(config(parts, type="model"), resume=True)
    assert lines(parts)[-1] == lines(whole)[-1]
