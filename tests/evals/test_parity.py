"""The doctor finds exact models exact, and sees it when they are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from turnwise.config.doctor import DoctorConfig
from turnwise.evals.parity import CASES, _figures, examine
from turnwise.model import load
from turnwise.testing import tiny_model

SMALL = DoctorConfig(sessions=4, turns=3, max_tokens=8)


WHOLE = ["plain", "turns", "packed", "fork"]
COMPACTED = [
    "budget",
    "budget_packed",
    "budget_fork",
    "per_turn",
    "evict",
    "delete",
    "delete_reread",
    "delete_fork",
]


def test_every_case_of_a_tiny_model_is_exact() -> None:
    found = examine(tiny_model(), SMALL)
    assert [case["name"] for case in found] == [*WHOLE, *COMPACTED] == list(CASES)
    assert all(float(case["max_abs_diff"]) < 2e-5 for case in found)
    assert [case["tokens"] for case in found][:4] == [4 * 8, 4 * 3 * 8, 4 * 3 * 8, (2 + 4 * 3) * 8 + 3 * 2 * 8]
    assert all((float(case["events"]) > 0) == (case["name"] in COMPACTED) for case in found)


@pytest.mark.parametrize("name", ["budget", "budget_packed", "budget_fork", "evict", "delete", "delete_fork"])
def test_a_boundary_that_is_off_by_one_token_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnwise.evals.parity import merge as real

    def early(talks):
        turns = [[replace(t, events=tuple(replace(e, at=e.at - 1) for e in t.events)) for t in k.turns] for k in talks]
        return real([replace(talk, turns=own) for talk, own in zip(talks, turns, strict=True)])

    monkeypatch.setattr("turnwise.evals.parity.merge", early)
    policy = tiny_model()
    assert _figures(policy, CASES[name](policy, SMALL))["max_abs_diff"] > 1e-3


def test_conversations_see_one_to_four_events() -> None:
    config = DoctorConfig(sessions=4, turns=8, max_tokens=16)
    talks = CASES["budget"](tiny_model(), config).talks
    assert [len(talk.turns[-1].events) for talk in talks] == [1, 2, 3, 4]


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
    assert any(case["events"] for case in found)
