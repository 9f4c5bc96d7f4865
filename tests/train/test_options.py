"""What any loss may add: reductions, a reference, truncated weights, judges; alone and through an optimizer step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from played import played, tight, turn
from turnwise.config.loss import CispoConfig, DppoConfig, GrpoConfig, Options, SftConfig
from turnwise.config.run import TrainConfig
from turnwise.losses import choose
from turnwise.rows import Row
from turnwise.testing import tiny_model
from turnwise.train import Judges, Tally, Trainer, batch, judge
from turnwise.train.numbers import numbers, sequences
from turnwise.train.reduce import reduce
from turnwise.train.reference import reference_kl
from turnwise.train.step import score_row

CPU = torch.device("cpu")


def rows_of(row_tokens: int = 4096, reduction: str = "token") -> list[Row]:
    """Two trajectories: replies of 1 and 3 tokens, and one of 4, drawn at 0.7 from a support in part."""
    episodes = [
        played(turn([1, 2], [3]), turn([1, 2, 3, 8], [4, 5, 6], temperature=0.7)),
        played(turn([1, 9, 9], [5, 6, 7, 8], support=tight([5, 6], [], [7], [8, 9]))),
    ]
    config = TrainConfig(row_tokens=row_tokens, share="trajectory")
    return batch(episodes, np.array([1.0, -1.0], np.float32), [0, 1], config, reduction)[0]


def weights(reduction: str, row_tokens: int = 4096) -> dict[tuple[int, int], list[float]]:
    """The weights of each reply's entries."""
    found: dict[tuple[int, int], list[float]] = {}
    for row in rows_of(row_tokens, reduction):
        for t, n, w in zip(row.entries.trajectory, row.entries.turn, row.entries.weight, strict=True):
            found.setdefault((int(t), int(n)), []).append(float(w))
    return found


@pytest.mark.parametrize("row_tokens", [8, 4096])
def test_a_reduction_counts_every_token_reply_or_trajectory_alike_however_they_lie(row_tokens: int) -> None:
    token, sequence, trace = (weights(r, row_tokens) for r in ("token", "sequence", "trace"))
    assert token == {(0, 0): [1.0], (0, 1): [1.0] * 3, (1, 0): [1.0] * 4}
    assert {k: sum(w) for k, w in sequence.items()} == pytest.approx(dict.fromkeys(token, 8 / 3))
    assert trace == token  # both trajectories sampled four tokens
    assert [len(set(w)) for w in sequence.values()] == [1, 1, 1]


def test_a_trace_is_divided_by_all_its_tokens() -> None:
    (row,) = rows_of()
    short = Row(row.ids, row.positions, row.visible_until, row.entries.take(np.arange(6)), row.turns)
    reduce([short], "trace")
    e = short.entries
    sums = [float(e.weight[e.trajectory == t].sum()) for t in (0, 1)]
    assert sums == pytest.approx([3.0, 3.0])


def test_no_rows_are_reduced_to_none() -> None:
    reduce([], "trace")


def test_replies_are_numbered_by_trajectory_and_turn() -> None:
    (row,) = rows_of()
    found = sequences(row.entries)
    pairs = list(zip(row.entries.trajectory.tolist(), row.entries.turn.tolist(), strict=True))
    assert [sorted(set(pairs)).index(p) for p in pairs] == found.tolist()


def test_without_a_cap_ratios_are_against_the_sampler_and_weights_stay() -> None:
    e = rows_of()[0].entries
    tokens = numbers(e, 0.0, CPU)
    torch.testing.assert_close(tokens.sampler_logp_E, torch.from_numpy(e.sampler_logp))
    assert tokens.weight_E.tolist() == [1.0] * 8


@pytest.mark.parametrize("cap", [0.5, 2.0, 1e6])
def test_with_a_cap_ratios_are_against_the_start_of_the_step_and_weights_correct_for_the_sampler(cap: float) -> None:
    (row,) = judge(rows_of(), Judges(start=tiny_model()))
    e = row.entries
    assert e.start_logp is not None
    tokens = numbers(e, cap, CPU)
    assert tokens.sampler_logp_E.tolist() == e.start_logp.tolist()
    expected = [min(math.exp(a - b), cap) for a, b in zip(e.start_logp, e.sampler_logp, strict=True)]
    assert tokens.weight_E.tolist() == pytest.approx(expected, rel=1e-5)
    assert tokens.weight_E.dtype == torch.float32


@pytest.mark.parametrize(
    "loss", [GrpoConfig(), CispoConfig(), DppoConfig(kl_tau=0.0), SftConfig()], ids=lambda c: c.type
)
def test_a_truncated_weight_multiplies_the_gradient_of_a_policy_that_has_not_moved(loss: Any) -> None:
    policy = tiny_model()
    (row,) = judge(rows_of(), Judges(start=policy))
    logp = score_row(policy, row).logp_E.detach().requires_grad_()
    tokens = numbers(row.entries, 1.5, CPU)
    choose(loss)(logp, tokens).loss.backward()
    slope = -1.0 if loss.type == "sft" else -tokens.advantage_E
    torch.testing.assert_close(logp.grad, slope * tokens.weight_E)
    assert len({round(w, 4) for w in tokens.weight_E.tolist()}) > 3


def test_judges_score_every_entry_under_their_own_weights_and_leave_the_rest_alone() -> None:
    rows = rows_of(row_tokens=8)
    judged = judge(rows, Judges(reference=tiny_model(seed=1), teacher=tiny_model(seed=2)))
    assert len(judged) == 2
    for row, before in zip(judged, rows, strict=True):
        with torch.no_grad():
            expected = [score_row(tiny_model(seed=s), row).logp_E.numpy() for s in (1, 2)]
        np.testing.assert_array_equal([row.entries.ref_logp, row.entries.teacher_logp], expected)
        assert row.entries.start_logp is None and before.entries.ref_logp is None


def test_nobody_asked_changes_nothing() -> None:
    rows = rows_of()
    assert judge(rows, Judges())[0] is rows[0]


def test_reference_kl_is_the_k3_estimate_and_its_gradient() -> None:
    (row,) = judge(rows_of(), Judges(reference=tiny_model(seed=1)))
    assert row.entries.ref_logp is not None
    logp = torch.full((8,), -2.0, requires_grad=True)
    loss = reference_kl(logp, row.entries)
    loss.backward()
    apart = row.entries.ref_logp.astype(np.float64) + 2.0
    assert float(loss.detach()) == pytest.approx(float((np.exp(apart) - apart - 1).sum()), rel=1e-5)
    assert logp.grad is not None
    np.testing.assert_allclose(logp.grad.numpy(), 1 - np.exp(apart), rtol=1e-4, atol=1e-6)


def stepped(options: Options, rows: list[Row], lr: float = 1e-3) -> tuple[dict[str, float], list[Tensor]]:
    """Metrics and weights after one update with a loss that has no gradient where advantages are 0."""
    config, tally = TrainConfig(lr=lr), Tally()
    trainer = Trainer(tiny_model(), config, choose(GrpoConfig()), options)
    trainer.update(rows, 0, tally)
    return tally.metrics(), [w.detach() for w in trainer.policy.model.parameters()]


def silent(rows: list[Row]) -> list[Row]:
    """The same rows without any advantage."""
    for row in rows:
        row.entries.advantage[:] = 0.0
    return rows


def test_a_policy_equal_to_its_reference_is_not_pulled_and_another_is() -> None:
    same = judge(silent(rows_of()), Judges(reference=tiny_model()))
    other = judge(silent(rows_of()), Judges(reference=tiny_model(seed=1)))
    metrics, _ = stepped(Options(reference_kl=1.0), same)
    assert metrics["optim/grad_norm"] < 1e-4 and metrics["policy/reference_kl"] < 1e-9
    pulled, _ = stepped(Options(reference_kl=1.0), other)
    assert pulled["optim/grad_norm"] > 1e-2
    assert pulled["loss/total"] == pytest.approx(pulled["policy/reference_kl"], rel=1e-4)
    half, _ = stepped(Options(reference_kl=0.5), other)
    assert half["optim/grad_norm"] == pytest.approx(pulled["optim/grad_norm"] / 2, rel=1e-4)


def test_entropy_alone_moves_weights_towards_a_flatter_distribution() -> None:
    before, _ = stepped(Options(), silent(rows_of()), lr=0.0 + 1e-12)
    config, tally = TrainConfig(lr=1e-3), Tally()
    trainer = Trainer(tiny_model(), config, choose(GrpoConfig()), Options(entropy=1.0))
    for _ in range(5):
        trainer.update(silent(rows_of()), 0, Tally())
    trainer.update(silent(rows_of()), 0, tally)
    assert tally.metrics()["policy/entropy"] > before["policy/entropy"]


def test_entropy_and_confidence_are_of_the_distribution_at_temperature_one() -> None:
    metrics, _ = stepped(Options(), rows_of())
    warm = rows_of()
    for row in warm:
        row.entries.temperature[:] = 1.0
    with torch.no_grad():
        logp, entropy, *_ = score_row(tiny_model(), warm[0])
    assert metrics["policy/entropy"] == pytest.approx(float(entropy.mean()), rel=1e-5)
    assert metrics["policy/confidence"] == pytest.approx(float(logp.mean().exp()), rel=1e-5)


def test_staleness_is_how_many_updates_ago_a_token_was_sampled() -> None:
    rows, tally = rows_of(), Tally()
    rows[0].entries.version[:4] = 3
    rows[0].entries.version[4:] = 1
    trainer = Trainer(tiny_model(), TrainConfig(), choose(GrpoConfig()))
    trainer.version = 5
    trainer.update(rows, 0, tally)
    assert (tally.metrics()["staleness/mean"], tally.metrics()["staleness/max"]) == (3.0, 4.0)
