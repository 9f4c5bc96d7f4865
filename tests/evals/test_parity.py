"""The doctor finds exact models exact, and sees it when they are not."""

from __future__ import annotations

import pytest
import torch

from turnwise.config.doctor import DoctorConfig
from turnwise.evals.parity import CASES, examine
from turnwise.model import load
from turnwise.testing import tiny_model

SMALL = DoctorConfig(sessions=4, turns=3, max_tokens=8)


def test_every_case_of_a_tiny_model_is_exact() -> None:
    found = examine(tiny_model(), SMALL)
    assert [case["name"] for case in found] == ["plain", "turns", "packed", "fork"] == list(CASES)
    assert all(float(case["max_abs_diff"]) < 1e-5 for case in found)
    assert [case["tokens"] for case in found] == [4 * 8, 4 * 3 * 8, 4 * 3 * 8, (2 + 4 * 3) * 8 + 3 * 2 * 8]


def test_weights_that_change_between_sampling_and_training_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_model()
    score_row = "turnwise.evals.parity.score_row"
    from turnwise.train.step import score_row as real

    def other_weights(p, row):
        with torch.no_grad():
            p.model.lm_head.weight.mul_(1.01)
        return real(p, row)

    monkeypatch.setattr(score_row, other_weights)
    assert all(float(case["max_abs_diff"]) > 1e-4 for case in examine(policy, SMALL))


@pytest.mark.real
def test_smollm2_is_exact_in_fp32() -> None:
    found = examine(load("smollm2"), DoctorConfig(sessions=2, turns=2, max_tokens=6))
    assert all(float(case["max_abs_diff"]) < 1e-4 for case in found)
