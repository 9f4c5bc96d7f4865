"""A run goes on under its own config."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.config import RunConfig, dump
from turnwise.errors import ConfigError
from turnwise.runs import RunFolder, check_same


def test_another_seed_or_rate_is_refused_and_the_way_out_is_named(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a", dump(RunConfig(seed=7)))
    with pytest.raises(ConfigError) as refused:
        check_same(folder, dump(RunConfig(seed=1, loss={"type": "grpo"})))
    text = str(refused.value)
    assert "seed 1 (the run has 7)" in text and "loss.type 'grpo' (the run has 'dppo')" in text
    assert f"turnwise train @ {folder.config} --resume" in text


def test_more_steps_and_another_rhythm_of_saving_are_allowed(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a", dump(RunConfig()))
    check_same(folder, dump(RunConfig(name="b", train={"steps": 7}, checkpoint={"every": 3})))
