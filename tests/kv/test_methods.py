"""An event on one layer: every method on one contract, and inputs at the edge of sense."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from plain import heads

from turnwise.kv.fit import slot_map, slots
from turnwise.kv.methods import METHODS, carried, compact
from turnwise.types import Settings

close = torch.testing.assert_close
WAYS = [
    *(Settings(method, carry_ratio=0.3) for method in METHODS),
    Settings(bias=True),
    Settings(select="omp"),
    Settings(uniform=False),
    Settings(recent=0, ratio=0.5),
]


def drawn(k_heads: int = 2, n: int = 30, m: int = 20, d: int = 4) -> tuple[torch.Tensor, ...]:
    draws = torch.Generator().manual_seed(m)
    return tuple(torch.randn(k_heads, c, d, generator=draws) for c in (n, m, m))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_method_keeps_columns_of_the_region_with_their_keys_in_any_batch(way):
    q, k, v = drawn()
    made = compact(q, k, v, (4, 16), 0.5, way)
    for h, kept in enumerate(made.keep_KT.tolist()):
        seen = [True] * len(kept) if made.bias_KT is None else (made.bias_KT[h] > -torch.inf).tolist()
        real = [column for column, is_seen in zip(kept, seen, strict=True) if is_seen]
        assert real == sorted({*real}) and all(4 <= column < 16 for column in real)
        close(made.keys_KTD[h], k[h, kept])
    two = compact(*(torch.stack([x, x]) for x in (q, k, v)), (4, 16), 0.5, way)
    if way.uniform:
        close(two.values_KTD[1], made.values_KTD)
    assert made.values_KTD.isfinite().all() and made.residual_K.isfinite().all()


@given(heads())
@settings(deadline=None)
def test_matched_values_are_those_of_the_map(given_heads):
    q, k, v, keep, inside, scale = given_heads
    made = compact(q, k, v, inside, scale, Settings(ratio=keep.shape[1] / (inside[1] - inside[0])))
    _, c2 = slots(k, v, made.keep_KT, slot_map(q, k, v, made.keep_KT, inside, scale, 1e-2))
    close(made.values_KTD, c2, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_region_kept_whole_loses_nothing(method):
    q, k, v = drawn()
    made = compact(q, k, v, (4, 16), 0.5, Settings(method, ratio=1.0, carry_ratio=1.0))
    close(made.values_KTD, v[:, 4:16])
    close(made.residual_K, torch.zeros(2), atol=1e-5, rtol=0)


def test_matching_misses_less_than_eviction_and_eviction_less_than_deletion():
    q, k, v = drawn()
    ways = [Settings(method) for method in ("match", "evict", "delete")]
    match, evict, delete = (compact(q, k, v, (4, 16), 0.5, way).residual_K for way in ways)
    assert (match < evict).all() and (evict < delete).all()


def test_nothing_kept_of_everything_visible_misses_all_of_it():
    q, k, v = drawn()
    made = compact(q, k, v, (0, 20), 0.5, Settings("delete"))
    assert (made.keys_KTD.shape, made.residual_K.tolist()) == ((2, 0, 4), [1.0, 1.0])


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("size", [1e-30, 1e2, 1e4])
def test_identical_keys_and_logits_beyond_fp32_are_finite(way, size):
    q, k, v = drawn()
    for keys in (k, torch.ones_like(k)):
        made = compact(q * size, keys, v, (4, 16), 0.5, way)
        assert made.values_KTD.isfinite().all() and (made.values_KTD.abs() < 100 * v.abs().max()).all()


def test_without_queries_the_oldest_and_newest_stay_as_they_are():
    _, k, v = drawn()
    made = compact(k[:, :0], k, v, (4, 16), 0.5, Settings(ratio=1 / 3))
    assert made.keep_KT.tolist() == [[4, 5, 14, 15]] * 2
    close(made.values_KTD, v[:, [4, 5, 14, 15]])


def test_slots_have_the_type_of_the_cache():
    q, k, v = (x.bfloat16() for x in drawn())
    made = compact(q, k, v, (4, 16), 0.5, Settings())
    assert made.keys_KTD.dtype == made.values_KTD.dtype == torch.bfloat16


def test_what_is_read_again_is_a_head_and_a_tail():
    assert carried(10, 2, 3) == [(0, 2), (7, 10)]
    assert carried(4, 2, 3) == [(0, 4)]
    assert (carried(4, 0, 1), carried(4, 0, 0), carried(0, 2, 3)) == ([(3, 4)], [], [])
