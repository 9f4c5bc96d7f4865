"""One contract for every loss: its value and gradient are those of a plain loop over tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from turnwise.config.loss import (
    CispoConfig,
    CustomConfig,
    DppoConfig,
    GrpoConfig,
    GspoConfig,
    OpdConfig,
    SftConfig,
)
from turnwise.errors import ConfigError, DataError
from turnwise.losses import Result, Tokens, choose

Plain = tuple[float, float]
"""One token's loss, and its derivative by logp."""


def mine(logp_E: Tensor, tokens: Tokens, scale: float = 1.0) -> Result:
    """A loss of a user's own: squared distance from the sampler, towards the advantage."""
    apart = logp_E - tokens.sampler_logp_E - tokens.advantage_E
    return Result((scale * apart.square() * tokens.weight_E).sum(), {"mine/apart": apart.detach().abs()})


def ratio_of(shift: float) -> tuple[float, bool]:
    """The clamped ratio, and whether a gradient flows through it."""
    return math.exp(max(-20.0, min(20.0, shift))), abs(shift) <= 20.0


def plain_masked(logp: float, old: float, signal: float, config: Any) -> Plain:
    moved = math.exp(logp) - math.exp(old)
    drop = moved > config.high if signal > 0 else moved < -config.low
    ratio, flows = ratio_of(logp - old)
    value = 0.0 if drop else -signal * ratio
    return value, value if flows else 0.0


def plain_dppo(logp: float, old: float, advantage: float, _: float, config: DppoConfig) -> Plain:
    value, slope = plain_masked(logp, old, advantage, config)
    shift = logp - old
    return config.adv_tau * value + config.kl_tau * shift**2, config.adv_tau * slope + 2 * config.kl_tau * shift


def plain_clipped(ratio: float, advantage: float, config: Any) -> tuple[float, bool]:
    inside = min(max(ratio, 1 - config.low), 1 + config.high)
    chosen = min(ratio * advantage, inside * advantage)
    return -chosen, chosen == ratio * advantage


def plain_grpo(logp: float, old: float, advantage: float, _: float, config: GrpoConfig) -> Plain:
    ratio, flows = ratio_of(logp - old)
    value, open_ = plain_clipped(ratio, advantage, config)
    return value, -ratio * advantage if open_ and flows else 0.0


def plain_cispo(logp: float, old: float, advantage: float, _: float, config: CispoConfig) -> Plain:
    weight = min(ratio_of(logp - old)[0], config.cap)
    return -weight * advantage * logp, -weight * advantage


def plain_opd(logp: float, old: float, _: float, teacher: float, config: OpdConfig) -> Plain:
    return plain_masked(logp, old, teacher - logp, config)


def plain_sft(logp: float, *_: Any) -> Plain:
    return -logp, -1.0


def plain_custom(logp: float, old: float, advantage: float, _: float, config: CustomConfig) -> Plain:
    scale, apart = config.kwargs.get("scale", 1.0), logp - old - advantage
    return scale * apart**2, 2 * scale * apart


PLAIN: dict[str, Any] = {
    "dppo": plain_dppo,
    "grpo": plain_grpo,
    "cispo": plain_cispo,
    "opd": plain_opd,
    "sft": plain_sft,
    "custom": plain_custom,
}
"""Losses in which a token stands alone; gspo, in which it does not, has its reference below."""
CONFIGS = [
    DppoConfig(),
    DppoConfig(low=0.05, high=0.4, adv_tau=0.7, kl_tau=0.3),
    DppoConfig(kl_tau=0.0),
    GrpoConfig(),
    GrpoConfig(low=0.1, high=0.6),
    GspoConfig(),
    GspoConfig(low=0.2, high=0.5),
    CispoConfig(),
    CispoConfig(cap=1.5),
    OpdConfig(teacher="t"),
    OpdConfig(teacher="t", low=0.02, high=0.5),
    SftConfig(),
    CustomConfig(import_path=f"{__file__}:mine"),
    CustomConfig(import_path=f"{__file__}:mine", kwargs={"scale": 0.5}),
]
every = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.type}-{CONFIGS.index(c)}")


LENGTHS = (1, 2, 5, 4, 8, 10, 20, 6, 4)
"""Of replies: tokens of one lie together, and micro-batches are cut between them."""


def made(seed: int, n: int = 60) -> tuple[Tensor, Tokens]:
    """Log-probabilities near the sampler's and far from them, advantages of both signs and zero, a few weights 0."""
    draw = torch.Generator().manual_seed(seed)
    old = -4 * torch.rand(n, generator=draw, dtype=torch.float64)
    spread = torch.tensor([0.05, 0.5, 3.0]).double().repeat(n // 3)
    logp = (old + spread * torch.randn(n, generator=draw, dtype=torch.float64)).clamp(max=-1e-3)
    advantage = torch.randint(-2, 3, (n,), generator=draw).double()
    weight = torch.randint(0, 3, (n,), generator=draw).double() / 2
    sequence = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    teacher = -4 * torch.rand(n, generator=draw, dtype=torch.float64)
    return logp, Tokens(advantage, old, weight, sequence, teacher)


def tokens_of(
    old: Sequence[float], advantage: Sequence[float], weight: float = 1.0, dtype: Any = torch.float64
) -> Tokens:
    """One reply; the teacher finds each token as much likelier than the sampler as it has advantage."""
    olds, wanted = torch.tensor(old, dtype=dtype), torch.tensor(advantage, dtype=dtype)
    return Tokens(wanted, olds, torch.full_like(olds, weight), torch.zeros(len(olds), dtype=torch.int64), olds + wanted)


def run(config: Any, logp: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Loss, gradient by logp, and marks."""
    leaf = logp.clone().requires_grad_()
    result = choose(config)(leaf, tokens)
    result.loss.backward()
    assert leaf.grad is not None
    assert all(marks.shape == logp.shape and not marks.requires_grad for marks in result.marks.values())
    return result.loss.detach(), leaf.grad, result.marks


def one(config: Any, logp: float, old: float, advantage: float, weight: float = 1.0) -> tuple[float, float]:
    """Loss and gradient of a single token."""
    tokens = tokens_of([old], [advantage], weight)
    loss, gradient, _ = run(config, torch.tensor([logp], dtype=torch.float64), tokens)
    return float(loss), float(gradient)


def plain_gspo(logp: Tensor, tokens: Tokens, config: GspoConfig) -> tuple[float, Tensor]:
    """Value and gradient of gspo, reply by reply: the gradient of a token is its share of its reply's mean."""
    value, slope = 0.0, torch.zeros_like(logp)
    for reply in range(len(LENGTHS)):
        at = (tokens.sequence_E == reply).nonzero()[:, 0].tolist()
        ratio, flows = ratio_of(sum(float(logp[i] - tokens.sampler_logp_E[i]) for i in at) / len(at))
        for i in at:
            token, open_ = plain_clipped(ratio, float(tokens.advantage_E[i]), config)
            value += float(tokens.weight_E[i]) * token
            if open_ and flows:
                slope[at] -= tokens.weight_E[i] * ratio * tokens.advantage_E[i] / len(at)
    return value, slope


@every
def test_value_and_gradient_are_those_of_a_loop_over_tokens(config: Any) -> None:
    logp, tokens = made(1)
    loss, gradient, _ = run(config, logp, tokens)
    if config.type == "gspo":
        value, slope = plain_gspo(logp, tokens, config)
    else:
        assert tokens.teacher_logp_E is not None
        columns = (logp, tokens.sampler_logp_E, tokens.advantage_E, tokens.teacher_logp_E)
        plain = [PLAIN[config.type](*map(float, numbers), config) for numbers in zip(*columns, strict=True)]
        slope = tokens.weight_E * torch.tensor([g for _, g in plain], dtype=torch.float64)
        value = float(tokens.weight_E @ torch.tensor([v for v, _ in plain], dtype=torch.float64))
    assert float(loss) == pytest.approx(value, rel=1e-9)
    torch.testing.assert_close(gradient, slope)


SMOOTH = [c for c in CONFIGS if c.type not in ("cispo", "opd") and c != GspoConfig()]
"""Losses that are functions of logp alone; the weights of the others have no gradient of their own."""


@pytest.mark.parametrize("config", SMOOTH, ids=lambda c: f"{c.type}-{CONFIGS.index(c)}")
def test_the_gradient_is_that_of_the_value_wherever_nothing_is_masked(config: Any) -> None:
    steps = [-0.1, -0.01, 0.01, 0.1]
    logp = torch.tensor([-1.5 + s for s in steps], dtype=torch.float64)
    tokens = tokens_of([-1.5] * 4, [1.0, -1.0, 2.0, -0.5])
    assert torch.autograd.gradcheck(lambda x: choose(config)(x, tokens).loss, logp.requires_grad_())


@every
def test_micro_batches_add_up_to_the_whole(config: Any) -> None:
    logp, tokens = made(2)
    loss, gradient, marks = run(config, logp, tokens)
    cuts = [slice(0, 1), slice(1, 20), slice(20, 60)]
    assert {c.stop for c in cuts} <= set(torch.tensor(LENGTHS).cumsum(0).tolist())
    parts = [run(config, logp[c], _cut(tokens, c)) for c in cuts]
    torch.testing.assert_close(torch.stack([p[0] for p in parts]).sum(), loss)
    torch.testing.assert_close(torch.cat([p[1] for p in parts]), gradient)
    assert all(torch.equal(torch.cat([p[2][name] for p in parts]), values) for name, values in marks.items())


def _cut(tokens: Tokens, c: slice) -> Tokens:
    """A micro-batch numbers its own replies."""
    assert tokens.teacher_logp_E is not None
    a, b, w, s, t = (x[c] for x in (*tokens[:4], tokens.teacher_logp_E))
    return Tokens(a, b, w, s - s[0], t)


@every
def test_the_order_of_tokens_does_not_matter(config: Any) -> None:
    logp, tokens = made(3)
    assert tokens.teacher_logp_E is not None
    shuffled = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    loss, gradient, _ = run(config, logp, tokens)
    moved = Tokens(*(x[shuffled] for x in (*tokens[:4], tokens.teacher_logp_E)))
    other, slope, _ = run(config, logp[shuffled], moved)
    torch.testing.assert_close(other, loss)
    torch.testing.assert_close(slope, gradient[shuffled])


@every
def test_no_tokens_cost_nothing(config: Any) -> None:
    loss, gradient, marks = run(config, torch.zeros(0), tokens_of([], [], dtype=torch.float32))
    assert (float(loss), len(gradient), sum(map(len, marks.values()))) == (0.0, 0, 0)


@every
def test_a_token_of_weight_zero_has_no_gradient_and_one_of_weight_two_has_it_twice(config: Any) -> None:
    assert one(config, -1.1, -1.0, 1.0, weight=0.0) == (0.0, 0.0)
    loss, gradient = one(config, -1.1, -1.0, 1.0)
    assert one(config, -1.1, -1.0, 1.0, weight=2.0) == (2 * loss, 2 * gradient)


@every
@pytest.mark.parametrize("advantage", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize(("logp", "old"), [(-1e4, -1e-6), (-1e-6, -1e4), (-200.0, -1.0), (0.0, 0.0), (-1e4, -1e4)])
def test_extreme_log_ratios_stay_finite_in_fp32(config: Any, logp: float, old: float, advantage: float) -> None:
    tokens = tokens_of([old], [advantage], dtype=torch.float32)
    loss, gradient, _ = run(config, torch.tensor([logp]), tokens)
    assert bool(torch.isfinite(loss)) and bool(torch.isfinite(gradient).all())


@every
def test_a_policy_that_has_not_moved_takes_the_plain_policy_gradient(config: Any) -> None:
    _, gradient = one(config, -1.0, -1.0, 0.75)
    others = {"dppo": -0.75 * getattr(config, "adv_tau", 0.0), "sft": -1.0}
    own = {"custom": 2 * -0.75 * config.kwargs.get("scale", 1.0)} if config.type == "custom" else {}
    assert gradient == pytest.approx((others | own).get(config.type, -0.75))


def test_the_weight_of_cispo_and_the_signal_of_opd_have_no_gradient_of_their_own() -> None:
    logp = torch.tensor([-1.4, -1.6], dtype=torch.float64)
    tokens = tokens_of([-1.5, -1.5], [1.0, -1.0])
    ratio = (logp - tokens.sampler_logp_E).exp()
    assert tokens.teacher_logp_E is not None
    torch.testing.assert_close(run(CispoConfig(), logp, tokens)[1], -ratio * tokens.advantage_E)
    torch.testing.assert_close(run(OpdConfig(teacher="t"), logp, tokens)[1], -ratio * (tokens.teacher_logp_E - logp))


def test_one_token_of_a_gspo_reply_moves_all_of_it_and_no_other() -> None:
    tokens = tokens_of([-1.0] * 4, [0.0, 3.0, 0.0, 0.0])._replace(sequence_E=torch.tensor([0, 0, 0, 1]))
    _, gradient, _ = run(GspoConfig(), torch.full((4,), -1.0, dtype=torch.float64), tokens)
    torch.testing.assert_close(gradient, torch.tensor([-1.0, -1.0, -1.0, 0.0], dtype=torch.float64))


def no_result(logp_E: Tensor, tokens: Tokens) -> Tensor:
    return -logp_E.sum()


def no_sum(logp_E: Tensor, tokens: Tokens) -> Result:
    return Result(-logp_E, {})


def no_marks(logp_E: Tensor, tokens: Tokens) -> Result:
    return Result(-logp_E.sum(), {"mine/x": logp_E.sum()})


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("no_result", "found Tensor; expected turnwise.losses.Result"),
        ("no_sum", r"found a loss of shape \(2,\)"),
        ("no_marks", r"found mine/x of shape \(\) for 2 tokens"),
    ],
)
def test_a_custom_loss_that_returns_something_else_is_told_what_was_found(name: str, found: str) -> None:
    config = CustomConfig(import_path=f"{__file__}:{name}")
    with pytest.raises(DataError, match=found):
        choose(config)(torch.zeros(2), tokens_of([0.0, 0.0], [1.0, 1.0], dtype=torch.float32))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("mine", "found 'mine'; name loss.import_path as 'package.module:function' or 'file.py:function'"),
        (f"{__file__}:mien", r"found no function 'mien' in .*did you mean 'mine'"),
        ("nowhere.at_all:mine", "found no module 'nowhere'"),
        ("absent.py:mine", "found no file .*absent.py"),
    ],
)
def test_a_custom_loss_that_cannot_be_found_is_named(path: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        choose(CustomConfig(import_path=path))
