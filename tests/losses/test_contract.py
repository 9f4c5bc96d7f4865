"""One contract for every loss: its value and gradient are those of a plain loop over tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from turnwise.config.loss import DppoConfig, GrpoConfig, SftConfig
from turnwise.losses import Tokens, choose

Plain = tuple[float, float]
"""One token's loss, and its derivative by logp."""


def plain_dppo(logp: float, old: float, advantage: float, config: DppoConfig) -> Plain:
    moved = math.exp(logp) - math.exp(old)
    drop = moved > config.high if advantage > 0 else moved < -config.low
    shift = logp - old
    ratio = math.exp(max(-20.0, min(20.0, shift)))
    policy = 0.0 if drop else -config.adv_tau * advantage * ratio
    slope = policy if abs(shift) <= 20.0 else 0.0
    return policy + config.kl_tau * shift**2, slope + 2 * config.kl_tau * shift


def plain_grpo(logp: float, old: float, advantage: float, config: GrpoConfig) -> Plain:
    shift = logp - old
    ratio = math.exp(max(-20.0, min(20.0, shift)))
    clipped = min(max(ratio, 1 - config.low), 1 + config.high)
    chosen = min(ratio * advantage, clipped * advantage)
    open_ = chosen == ratio * advantage and abs(shift) <= 20.0
    return -chosen, -ratio * advantage if open_ else 0.0


def plain_sft(logp: float, old: float, advantage: float, config: SftConfig) -> Plain:
    return -logp, -1.0


PLAIN: dict[str, Any] = {"dppo": plain_dppo, "grpo": plain_grpo, "sft": plain_sft}
CONFIGS = [
    DppoConfig(),
    DppoConfig(low=0.05, high=0.4, adv_tau=0.7, kl_tau=0.3),
    DppoConfig(kl_tau=0.0),
    GrpoConfig(),
    GrpoConfig(low=0.1, high=0.6),
    SftConfig(),
]
every = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "-".join(map(str, dict(c).values())))


def made(seed: int, n: int = 60) -> tuple[Tensor, Tokens]:
    """Log-probabilities near the sampler's and far from them, advantages of both signs and zero, a few weights 0."""
    draw = torch.Generator().manual_seed(seed)
    old = -4 * torch.rand(n, generator=draw, dtype=torch.float64)
    spread = torch.tensor([0.05, 0.5, 3.0]).double().repeat(n // 3)
    logp = (old + spread * torch.randn(n, generator=draw, dtype=torch.float64)).clamp(max=-1e-3)
    advantage = torch.randint(-2, 3, (n,), generator=draw).double()
    weight = torch.randint(0, 3, (n,), generator=draw).double() / 2
    return logp, Tokens(advantage, old, weight)


def run(config: Any, logp: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Loss, gradient by logp, and sums."""
    leaf = logp.clone().requires_grad_()
    result = choose(config)(leaf, tokens)
    result.loss.backward()
    assert leaf.grad is not None
    return result.loss.detach(), leaf.grad, {name: float(value) for name, value in result.sums.items()}


def one(config: Any, logp: float, old: float, advantage: float, weight: float = 1.0) -> tuple[float, float]:
    """Loss and gradient of a single token."""
    tokens = Tokens(*(torch.tensor([x], dtype=torch.float64) for x in (advantage, old, weight)))
    loss, gradient, _ = run(config, torch.tensor([logp], dtype=torch.float64), tokens)
    return float(loss), float(gradient)


@every
def test_value_and_gradient_are_those_of_a_loop_over_tokens(config: Any) -> None:
    logp, tokens = made(1)
    loss, gradient, _ = run(config, logp, tokens)
    numbers = zip(logp, tokens.sampler_logp_E, tokens.advantage_E, tokens.weight_E, strict=True)
    plain = [(w, *PLAIN[config.type](p, o, a, config)) for p, o, a, w in (map(float, n) for n in numbers)]
    assert float(loss) == pytest.approx(sum(w * value for w, value, _ in plain), rel=1e-12)
    torch.testing.assert_close(gradient, torch.tensor([w * g for w, _, g in plain], dtype=torch.float64))


@every
def test_the_gradient_is_that_of_the_value_wherever_nothing_is_masked(config: Any) -> None:
    steps = [-0.1, -0.01, 0.01, 0.1]
    logp = torch.tensor([-1.5 + s for s in steps], dtype=torch.float64)
    tokens = Tokens(torch.tensor([1.0, -1.0, 2.0, -0.5]).double(), torch.full_like(logp, -1.5), torch.ones_like(logp))
    assert torch.autograd.gradcheck(lambda x: choose(config)(x, tokens).loss, logp.requires_grad_())


@every
def test_micro_batches_add_up_to_the_whole(config: Any) -> None:
    logp, tokens = made(2)
    loss, gradient, sums = run(config, logp, tokens)
    cuts = [slice(0, 1), slice(1, 20), slice(20, 60)]
    parts = [run(config, logp[c], Tokens(*(x[c] for x in tokens))) for c in cuts]
    torch.testing.assert_close(torch.stack([p[0] for p in parts]).sum(), loss)
    torch.testing.assert_close(torch.cat([p[1] for p in parts]), gradient)
    assert sums == {name: sum(p[2][name] for p in parts) for name in sums}


@every
def test_no_tokens_cost_nothing(config: Any) -> None:
    loss, gradient, sums = run(config, torch.zeros(0), Tokens(*[torch.zeros(0)] * 3))
    assert (float(loss), len(gradient), set(sums.values()) <= {0.0}) == (0.0, 0, True)


@every
def test_a_token_of_weight_zero_has_no_gradient_and_one_of_weight_two_has_it_twice(config: Any) -> None:
    assert one(config, -1.1, -1.0, 1.0, weight=0.0) == (0.0, 0.0)
    loss, gradient = one(config, -1.1, -1.0, 1.0)
    assert one(config, -1.1, -1.0, 1.0, weight=2.0) == (2 * loss, 2 * gradient)


@every
@pytest.mark.parametrize("advantage", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize(("logp", "old"), [(-1e4, -1e-6), (-1e-6, -1e4), (-200.0, -1.0), (0.0, 0.0), (-1e4, -1e4)])
def test_extreme_log_ratios_stay_finite_in_fp32(config: Any, logp: float, old: float, advantage: float) -> None:
    tokens = Tokens(torch.tensor([advantage]), torch.tensor([old]), torch.ones(1))
    loss, gradient, _ = run(config, torch.tensor([logp]), tokens)
    assert bool(torch.isfinite(loss)) and bool(torch.isfinite(gradient).all())


@every
def test_a_policy_that_has_not_moved_takes_the_plain_policy_gradient(config: Any) -> None:
    _, gradient = one(config, -1.0, -1.0, 0.75)
    expected = {"dppo": -0.75 * getattr(config, "adv_tau", 0.0), "grpo": -0.75, "sft": -1.0}
    assert gradient == pytest.approx(expected[config.type])
