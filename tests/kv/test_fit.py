"""Slot values equal a loop over the definition, and keep attention where they can."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from plain import attention, heads, values

from turnwise.kv.fit import slot_map, slots, staying, take

RIDGE = 1e-2
close = torch.testing.assert_close


def test_the_columns_that_stay_are_the_kept_ones_and_all_outside():
    assert staying(torch.tensor([[2], [1]]), (1, 3), 4).int().tolist() == [[1, 0, 1, 1], [1, 1, 0, 1]]


@given(heads())
@settings(deadline=None)
def test_the_map_gives_the_values_of_the_definition(given_heads):
    q, k, v, keep, inside, scale = given_heads
    c1, c2 = slots(k, v, keep, slot_map(q, k, v, keep, inside, scale, RIDGE))
    plain = [values(*(x.numpy() for x in (q[h], k[h], v[h], keep[h])), inside, scale, RIDGE) for h in range(len(q))]
    close(c2, torch.tensor(np.array(plain)), atol=1e-9, rtol=1e-7)
    assert torch.equal(c1, take(k, keep))


@given(heads())
@settings(deadline=None)
def test_a_region_kept_whole_is_as_before(given_heads):
    q, k, v, _, inside, scale = given_heads
    keep = torch.arange(*inside).expand(len(q), -1)
    close(slot_map(q, k, v, keep, inside, scale, RIDGE), torch.eye(k.shape[1]).double()[keep], atol=1e-9, rtol=0)


@given(heads())
@settings(deadline=None)
def test_the_order_of_reference_queries_does_not_matter(given_heads):
    q, *rest = given_heads
    scale = rest.pop()
    once, again = (slot_map(x, *rest, scale, RIDGE) for x in (q, q.flip(1)))
    close(once, again, atol=1e-8, rtol=1e-6)


@given(heads())
@settings(deadline=None)
def test_heads_and_sessions_in_a_batch_equal_one_by_one(given_heads):
    q, k, v, keep, inside, scale = given_heads
    two = [torch.stack([x, x.flip(0)]) for x in (q, k, v, keep)]
    batch = slot_map(*two, inside, scale, RIDGE)
    for h in range(len(q)):
        one = slot_map(*(x[h : h + 1] for x in (q, k, v, keep)), inside, scale, RIDGE)[0]
        close(batch[0, h], one, atol=1e-9, rtol=1e-7)
        close(batch[1, len(q) - 1 - h], one, atol=1e-9, rtol=1e-7)


@given(heads())
@settings(deadline=None)
def test_no_other_values_match_attention_over_everything_better(given_heads):
    q, k, v, keep, inside, scale = given_heads
    _, fitted = slots(k, v, keep, slot_map(q, k, v, keep, inside, scale, 1e-9))
    outside = torch.tensor([n for n in range(k.shape[1]) if not inside[0] <= n < inside[1]], dtype=torch.long)
    stay = torch.cat([keep, outside.expand(len(keep), -1)], 1)

    def error(new: torch.Tensor) -> torch.Tensor:
        left = torch.cat([new, take(v, stay)[:, keep.shape[1] :]], 1)
        pairs = zip(q, k, v, take(k, stay), left, strict=True)
        off = [attention(a, b, c, scale) - attention(a, d, e, scale) for a, b, c, d, e in map(_arrays, pairs)]
        return torch.tensor([(o**2).sum() for o in off])

    moved = fitted + 0.05 * torch.randn(fitted.shape, generator=torch.Generator().manual_seed(0)).double()
    assert (error(fitted) <= error(take(v, keep)) + 1e-7).all() and (error(fitted) <= error(moved) + 1e-7).all()


def _arrays(parts):
    return [x.numpy() for x in parts]


def test_gradients_of_queries_keys_and_values_are_those_of_finite_differences():
    draws = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, n, 3, generator=draws, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7))
    keep = torch.tensor([[1, 3], [2, 4]])

    def both(*qkv: torch.Tensor) -> torch.Tensor:
        return torch.cat(slots(qkv[1], qkv[2], keep, slot_map(*qkv, keep, (1, 5), 0.6, RIDGE)), -1)

    assert torch.autograd.gradcheck(both, (q, k, v))


def test_no_slots_are_an_empty_map():
    q, k = torch.randn(2, 5, 4), torch.randn(2, 6, 4)
    assert slot_map(q, k, k, torch.zeros(2, 0, dtype=torch.long), (0, 6), 0.5, RIDGE).shape == (2, 0, 6)


def test_identical_keys_share_what_was_theirs():
    q, k, v = torch.randn(1, 9, 4), torch.ones(1, 6, 4), torch.arange(24.0).reshape(1, 6, 4)
    _, c2 = slots(k, v, torch.tensor([[1, 4]]), slot_map(q, k, v, torch.tensor([[1, 4]]), (0, 6), 0.5, RIDGE))
    close(c2.mean(1), v.mean(1), atol=0.05, rtol=0)


def test_logits_far_beyond_what_fp32_can_exponentiate_are_no_special_case():
    q, k = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]) * 1e4, torch.tensor([[[9.0, 0.0], [0.0, 0.0], [-9.0, 0.0]]])
    v = torch.tensor([[[1.0], [2.0], [4.0]]])
    made = slot_map(q, k, v, torch.tensor([[2]]), (0, 3), 1.0, RIDGE)
    close(made @ v, torch.tensor([[[(1 + 7 / 3) / 2]]]), atol=0.05, rtol=0)


def test_bf16_is_computed_in_fp32():
    q, k = torch.randn(2, 5, 4).bfloat16(), torch.randn(2, 6, 4).bfloat16()
    made = slot_map(q, k, k, torch.tensor([[1], [2]]), (1, 4), 0.5, RIDGE)
    close(made, slot_map(q.float(), k.float(), k, torch.tensor([[1], [2]]), (1, 4), 0.5, RIDGE), atol=0, rtol=0)
