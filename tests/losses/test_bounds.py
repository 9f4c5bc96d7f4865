"""Where a trust region begins: which tokens are dropped, on which side, and what is counted."""

from __future__ import annotations

import math

import pytest
import torch

from turnwise.config.loss import CispoConfig, DppoConfig, GrpoConfig, GspoConfig, LossConfig, OpdConfig, SftConfig
from turnwise.losses import Tokens, choose

DPPO = DppoConfig(low=0.25, high=0.125, kl_tau=0.0)
GRPO = GrpoConfig(low=0.2, high=0.28)
HALF = math.log(0.5)


def gradient(
    config: LossConfig, chance: float, advantage: float, old: float = 0.5, teacher: float = 0.5
) -> tuple[float, dict[str, float]]:
    """Gradient by logp of one token of probability `chance`, and its marks."""
    logp = torch.tensor([math.log(chance)], dtype=torch.float64, requires_grad=True)
    columns = [torch.tensor([x], dtype=torch.float64) for x in (advantage, math.log(old), 1.0, math.log(teacher))]
    result = choose(config)(logp, Tokens(*columns[:3], torch.tensor([0]), columns[3]))
    result.loss.backward()
    assert logp.grad is not None
    return float(logp.grad), {name: float(value) for name, value in result.marks.items()}


@pytest.mark.parametrize(
    ("chance", "advantage", "dropped"),
    [
        (0.62, 1.0, None),
        (0.63, 1.0, "policy/masked_high"),
        (0.1, 1.0, None),
        (0.26, -1.0, None),
        (0.24, -1.0, "policy/masked_low"),
        (0.9, -1.0, None),
    ],
)
def test_dppo_drops_what_has_moved_far_the_wanted_way_and_nothing_else(
    chance: float, advantage: float, dropped: str | None
) -> None:
    slope, sums = gradient(DPPO, chance, advantage)
    counted = {"policy/masked_high": 0.0, "policy/masked_low": 0.0}
    assert sums == (counted | {dropped: 1.0} if dropped else counted)
    assert slope == (0.0 if dropped else pytest.approx(-advantage * chance / 0.5))


def test_dppo_keeps_a_token_that_moved_by_exactly_the_bound() -> None:
    one = DppoConfig(high=0.5, low=0.5, kl_tau=0.0)
    assert gradient(one, 1.0, 1.0)[0] == pytest.approx(-2.0)
    assert gradient(one, 0.5, -1.0, old=1.0)[0] == pytest.approx(0.5)


def test_dppo_measures_probability_and_not_ratio() -> None:
    slope, _ = gradient(DPPO, 0.08, 1.0, old=0.01)
    assert slope == pytest.approx(-8.0)


def test_dppo_pulls_dropped_tokens_back_by_the_squared_log_ratio_alone() -> None:
    slope, _ = gradient(DppoConfig(high=0.1, kl_tau=0.5), 0.9, 1.0)
    assert slope == pytest.approx(2 * 0.5 * (math.log(0.9) - HALF))


def test_dppo_without_advantage_has_only_that_pull() -> None:
    assert gradient(DppoConfig(kl_tau=0.0), 0.4, 0.0)[0] == 0.0
    assert gradient(DppoConfig(kl_tau=0.5), 0.4, 0.0)[0] == pytest.approx(math.log(0.4) - HALF)


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [
        (1.27, 1.0, None),
        (1.29, 1.0, "policy/clip_high"),
        (0.1, 1.0, None),
        (0.81, -1.0, None),
        (0.79, -1.0, "policy/clip_low"),
        (1.9, -1.0, None),
    ],
)
def test_grpo_clips_what_has_moved_far_the_wanted_way_and_nothing_else(
    ratio: float, advantage: float, clipped: str | None
) -> None:
    slope, sums = gradient(GRPO, 0.5 * ratio, advantage)
    counted = {"policy/clip_high": 0.0, "policy/clip_low": 0.0}
    assert sums == (counted | {clipped: 1.0} if clipped else counted)
    assert slope == (0.0 if clipped else pytest.approx(-advantage * ratio))


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 1.5, 1.9])
def test_grpo_without_advantage_has_no_gradient_and_clips_nothing(ratio: float) -> None:
    slope, sums = gradient(GRPO, 0.5 * ratio, 0.0)
    assert (slope, sums) == (0.0, {"policy/clip_high": 0.0, "policy/clip_low": 0.0})


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_sft_looks_neither_at_rewards_nor_at_the_sampler(advantage: float) -> None:
    assert gradient(SftConfig(), 0.9, advantage, old=0.01) == (-1.0, {})


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"), [(1.0003, 1.0, True), (1.0005, 1.0, False), (0.9996, -1.0, False)]
)
def test_gspo_clips_a_reply_much_sooner_than_grpo_a_token(ratio: float, advantage: float, moves: bool) -> None:
    slope, marks = gradient(GspoConfig(), 0.5 * ratio, advantage)
    assert (slope != 0.0, sum(marks.values())) == (moves, 0.0 if moves else 1.0)
    assert gradient(GRPO, 0.5 * ratio, advantage)[0] == pytest.approx(-advantage * ratio)


@pytest.mark.parametrize(("ratio", "weight"), [(0.5, 0.5), (1.9, 1.9), (2.1, 2.0)])
def test_cispo_caps_the_weight_and_still_moves_the_token(ratio: float, weight: float) -> None:
    slope, marks = gradient(CispoConfig(cap=2.0), 0.2 * ratio, 1.0, old=0.2)
    assert slope == pytest.approx(-weight)
    assert marks == {"policy/clip_high": float(ratio > 2.0)}


@pytest.mark.parametrize(
    ("chance", "teacher", "moves"), [(0.6, 0.9, True), (0.8, 0.9, False), (0.8, 0.3, True), (0.2, 0.1, False)]
)
def test_opd_follows_the_teacher_until_the_token_has_moved_far_enough(
    chance: float, teacher: float, moves: bool
) -> None:
    slope, marks = gradient(OpdConfig(teacher="t"), chance, 9.0, teacher=teacher)
    assert slope == (pytest.approx(-math.log(teacher / chance) * chance / 0.5) if moves else 0.0)
    assert marks["policy/teacher_kl"] == pytest.approx(math.log(chance / teacher))
