"""Reference queries: where each source takes them from, and where they stand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.kv.queries import SOURCES, Stored, own, pooled, spaced, suffix
from turnwise.kv.rotary import turn

FREQ = 10000.0 ** (-torch.arange(3).double() / 3)
close = torch.testing.assert_close


def rotated(raw: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Loops: dimension pairs (i, i + 3) of 7 turn by position * frequency."""
    out = raw.clone()
    for n, position in enumerate(at.tolist()):
        for i, f in enumerate(FREQ.tolist()):
            c, s = math.cos(position * f), math.sin(position * f)
            a, b = raw[..., n, i], raw[..., n, i + 3]
            out[..., n, i], out[..., n, i + 3] = a * c - b * s, b * c + a * s
    return out


def stored(m: int = 12, inside: tuple[int, int] = (2, 8)) -> tuple[Stored, torch.Tensor]:
    """A cache of 2 heads with 3 query heads each, of which columns 2 and 3 are slots, and its queries unrotated."""
    draws = torch.Generator().manual_seed(0)
    raw = torch.randn(2, 3, m, 7, generator=draws, dtype=torch.float64)
    at = torch.arange(m) + 20
    has = ~torch.isin(torch.arange(m), torch.tensor([2, 3]))
    again = torch.randn(2, 3, 6, 7, generator=draws, dtype=torch.float64)
    keys = torch.randn(2, m, 7, generator=draws, dtype=torch.float64)
    return Stored(rotated(raw, at), keys, has, at, inside, 20 + m, FREQ, again), raw


@given(st.integers(0, 3000), st.integers(-3000, 3000))
@settings(deadline=None)
def test_turning_composes(position, by):
    raw = torch.randn(2, 1, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turned = turn(rotated(raw, torch.tensor([position])), torch.tensor([by]), FREQ)
    close(turned, rotated(raw, torch.tensor([position + by])), atol=1e-5, rtol=0)


def test_own_queries_stand_where_the_next_tokens_will():
    cache, raw = stored()
    goal = torch.tensor([32, 33, 34, 35])
    close(own(cache, 12), pooled(rotated(raw[..., 4:8, :], goal)), atol=1e-6, rtol=0)


def test_positions_wrap_after_as_many_as_the_suffix_is_long():
    cache, raw = stored(m=10)
    goal = torch.tensor([30, 31, 30, 31])
    close(own(cache, 12), pooled(rotated(raw[..., 4:8, :], goal)), atol=1e-6, rtol=0)


def test_suffix_queries_are_as_they_were():
    cache, _ = stored()
    close(suffix(cache, 6), pooled(cache.q_KGMD[..., [9, 11], :]))


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_enough_queries_of_every_head(source):
    found = SOURCES[source](stored()[0], 6)
    assert found.shape[0::2] == (2, 7) and found.shape[1] >= 6
    assert found.isfinite().all()


def test_random_queries_are_those_of_their_seed():
    cache, _ = stored()
    assert torch.equal(SOURCES["gaussian"](cache, 9), SOURCES["gaussian"](cache, 9))


def test_queries_are_taken_evenly_the_last_among_them():
    assert spaced(torch.tensor([4, 5, 6, 7]), 2).tolist() == [5, 7]
    assert spaced(torch.tensor([4, 5]), 9).tolist() == [4, 5]
