"""Scores and selections equal loops, and say what they are made for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import heads, weights

from turnwise.kv.bias import LEAST, MOST, log_weights
from turnwise.kv.part import BLOCK, gist, join, part
from turnwise.kv.score import score
from turnwise.kv.select import budgets, newest, omp, top
from turnwise.types import count

close = torch.testing.assert_close


@given(heads())
@settings(deadline=None)
def test_the_score_is_the_mean_square_of_attention_within_the_region(given_heads):
    q, k, v, _, (start, end), scale = given_heads
    found = score(gist(q * scale, k[:, start:end], v[:, start:end]))
    for h in range(len(q)):
        e = weights(q[h].numpy(), k[h, start:end].numpy(), scale)
        p = e / e.sum(1, keepdims=True)
        close(found[h], torch.from_numpy((p**2).sum(0) / len(p)))


@given(heads())
@settings(deadline=None)
def test_two_parts_joined_are_attention_over_both(given_heads):
    q, k, v, _, (start, end), scale = given_heads
    inside = gist(q * scale, k[:, start:end], v[:, start:end])
    outside = part(q * scale, *(torch.cat([x[:, :start], x[:, end:]], 1) for x in (k, v)))
    mass, out = join(inside, outside)
    logits = scale * q @ k.mT
    close(out, logits.softmax(-1) @ v)
    close(mass, logits.logsumexp(-1, keepdim=True))


@pytest.mark.parametrize(
    ("ratio", "size", "slots"), [(0.25, 10, 3), (0.1, 30, 3), (1.0, 7, 7), (0.0, 7, 0), (0.5, 0, 0)]
)
def test_slots_are_the_ratio_rounded_up(ratio, size, slots):
    assert count(ratio, size) == slots


def test_the_newest_stay_and_the_best_of_the_rest_and_of_equals_the_older():
    scores = torch.tensor([[5.0, 1.0, 3.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0, 0.0]])
    assert top(scores, 2, 32).tolist() == [[0, 4], [0, 4]]
    assert top(scores, 2, 0).tolist() == [[0, 2], [0, 1]]
    assert top(scores, 5, 32).tolist() == [[0, 1, 2, 3, 4]] * 2
    assert (top(scores, 0, 32).shape, newest(scores, 2).tolist()) == ((2, 0), [[3, 4]] * 2)


@given(st.integers(1, 20), st.data())
@settings(deadline=None)
def test_any_number_of_slots_is_as_many_different_columns_in_order(size, data):
    t, recent = data.draw(st.integers(0, size)), data.draw(st.integers(0, 40))
    kept = top(torch.rand(2, size, generator=torch.Generator().manual_seed(size)), t, recent)
    assert kept.shape == (2, t)
    assert all(row == sorted({*row}) and len(row) == t for row in kept.tolist())


def test_head_budgets_follow_the_scores_and_sum_to_the_uniform_number():
    scores = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3]])
    assert (budgets(scores, 1, 1).tolist(), budgets(scores, 2, 1).tolist()) == ([1, 1], [1, 3])


def test_matching_pursuit_takes_each_key_once_and_explains_mass_better_than_the_worst_choice():
    draws = torch.Generator().manual_seed(0)
    q, k = torch.randn(1, 40, 4, generator=draws), torch.randn(1, 12, 4, generator=draws)
    chosen = omp((q @ k.mT).softmax(-1), 4)[0].tolist()
    assert len({*chosen}) == 4
    p = (q @ k.mT).softmax(-1)[0]
    assert _missed(p, chosen) < _missed(p, score(gist(q, k, k))[0].argsort()[:4].tolist())


def _missed(p, chosen):
    """What no weights of the chosen columns explain of a mass of 1."""
    fitted = np.linalg.lstsq(p[:, chosen].numpy(), np.ones(len(p)), rcond=None)[0]
    return float(((p[:, chosen].numpy() @ fitted - 1) ** 2).sum())


def test_a_key_left_of_two_equal_ones_weighs_two():
    q, k = torch.randn(1, 9, 4), torch.randn(1, 1, 4).repeat(1, 2, 1)
    both, one = gist(q, k, k), part(q, k[:, :1], k[:, :1])
    close(log_weights(one, both, both.mass_KN1), torch.tensor([[np.log(2.0)]], dtype=torch.float32))


def test_weights_are_the_bounded_least_squares():
    draws = torch.Generator().manual_seed(3)
    q, k = (torch.randn(1, n, 3, generator=draws, dtype=torch.float64) for n in (30, 8))
    inside, kept = gist(q, k, k), part(q, k[:, :3], k[:, :3])
    log_w = log_weights(kept, inside, inside.mass_KN1, steps=5000)
    w = log_w.exp().requires_grad_()
    shares = (q @ k.mT - inside.mass_KN1).exp()
    (slope,) = torch.autograd.grad(((shares[..., :3] @ w[..., None] - 1) ** 2).sum(), w)
    free = (w > LEAST * 1.001) & (w < MOST * 0.999)
    close(slope[free], torch.zeros_like(slope[free]), atol=1e-6, rtol=0)
    assert (slope[w <= LEAST * 1.001] >= -1e-6).all()


@given(heads(), st.integers(1, 9))
@settings(deadline=None)
def test_queries_in_blocks_and_batches_are_as_all_at_once(given_heads, more):
    q, k, v, *_ = given_heads
    many = torch.stack([q, q.flip(1)]).repeat(1, 1, 4 * more, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BLOCK, "cpu", 1)
        found = gist(many, *(torch.stack([x, x]) for x in (k, v)))
    whole = part(many, *(torch.stack([x, x]) for x in (k, v)))
    close(tuple(found), (whole.p_KNC.square().sum(-2), whole.mass_KN1, whole.out_KND))
