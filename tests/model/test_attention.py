"""Attention by visibility equals plain attention over exactly what each token may see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

from turnwise.errors import ModelError
from turnwise.model import attention
from turnwise.model.attention import flex_columns, flex_mask, flex_padded, row_attention
from turnwise.model.pieces import Piece, attend_pieces, pieces
from turnwise.testing import tiny_model

CPU = torch.device("cpu")


def dense(visible_until: np.ndarray) -> torch.Tensor:
    i, j = np.indices((len(visible_until), len(visible_until)))
    return torch.from_numpy((j <= i) & (i < visible_until[None]))


@st.composite
def visibilities(draw: st.DrawFn) -> np.ndarray:
    """Any ends at all, not only those of trees: what deletion leaves is no tree."""
    n = draw(st.integers(1, 40))
    return np.array([draw(st.integers(j + 1, n)) for j in range(n)], np.int32)


def shown(plan: list[Piece], length: int) -> np.ndarray:
    """How often each query sees each column."""
    times = np.zeros((length, length), int)
    for p in plan:
        inside = np.ones((p.end - p.start, p.last - p.first), int)
        inside = np.tril(inside) if p.causal else inside if p.mask is None else (p.mask == 0).int().numpy()
        times[p.start : p.end, p.first : p.last] += inside
    return times


def spans(plan: list[Piece]) -> list[tuple[int, int, int, int, bool]]:
    return [(p.start, p.end, p.first, p.last, p.causal) for p in plan]


def test_a_prefix_is_one_causal_call_for_all_who_see_it_and_each_branch_another() -> None:
    visible_until = np.array([9, 9, 9, 6, 6, 6, 9, 9, 9], np.int32)
    assert spans(pieces(visible_until, window=3)) == [(0, 9, 0, 3, True), (3, 6, 3, 6, True), (6, 9, 6, 9, True)]


def test_short_runs_share_a_mask_and_those_behind_it_see_what_is_left() -> None:
    visible_until = np.array([9, 9, 3, 9, 9, 9, 9, 9, 9], np.int32)
    found = pieces(visible_until, window=4)
    assert spans(found) == [(0, 3, 0, 3, False), (3, 9, 0, 2, False), (3, 9, 3, 9, True)]
    assert [p.mask is None for p in found] == [False, True, True]


@pytest.mark.parametrize("branches", [2, 10, 40])
def test_a_fork_of_many_branches_takes_a_call_a_branch_and_computes_what_is_visible(branches: int) -> None:
    visible_until = np.concatenate([np.full(500, 500 + 90 * branches), 500 + 90 * (np.arange(90 * branches) // 90 + 1)])
    plan = pieces(visible_until.astype(np.int32))
    assert len(plan) == 1 + branches
    assert (shown(plan, len(visible_until)) == dense(visible_until).int().numpy()).all()


@given(visibilities(), st.integers(1, 20))
def test_pieces_show_each_query_exactly_what_the_interval_says_and_once(visible_until: np.ndarray, window: int) -> None:
    plan = pieces(visible_until, window)
    assert (shown(plan, len(visible_until)) == dense(visible_until).int().numpy()).all()
    assert [p.start for p in plan] == sorted(p.start for p in plan)


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
@settings(max_examples=30, deadline=None)
@given(visibilities(), st.integers(0, 2**31))
def test_row_attention_and_its_gradient_equal_a_dense_mask(device: str, visible_until: np.ndarray, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    n = len(visible_until)
    drawn = [torch.randn(1, h, n, 16, generator=draws) for h in (4, 2, 2, 4)]
    q, k, v, weight = (x.to(device).requires_grad_(i < 3) for i, x in enumerate(drawn))
    ours = row_attention(visible_until, torch.device(device))(0, q, k, v, 0.3)
    plain = sdpa(q, k, v, dense(visible_until).to(device), scale=0.3, enable_gqa=True)
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)
    for a, b in zip(
        torch.autograd.grad((ours * weight).sum(), (q, k, v)),
        torch.autograd.grad((plain * weight).sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@settings(max_examples=30, deadline=None)
@given(visibilities(), st.integers(1, 20), st.sampled_from([torch.float32, torch.float64]), st.integers(0, 2**31))
def test_however_a_row_is_cut_output_and_gradient_are_those_of_a_dense_mask(
    visible_until: np.ndarray, window: int, dtype: torch.dtype, seed: int
) -> None:
    draws, n = torch.Generator().manual_seed(seed), len(visible_until)
    q, k, v, weight = (torch.randn(1, n, h, 8, generator=draws, dtype=dtype).transpose(1, 2) for h in (6, 2, 2, 6))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    ours = attend_pieces(*inputs, pieces(visible_until, window), 0.3)
    plain = sdpa(*inputs, dense(visible_until), scale=0.3, enable_gqa=True)
    close = {"atol": 1e-10, "rtol": 1e-10} if dtype == torch.float64 else {"atol": 2e-5, "rtol": 2e-5}
    torch.testing.assert_close(ours, plain, **close)
    for a, b in zip(*(torch.autograd.grad((o * weight).sum(), inputs) for o in (ours, plain)), strict=True):
        torch.testing.assert_close(a, b, **close)


def test_columns_beyond_the_row_are_seen_by_whom_a_piece_says() -> None:
    """Key 2 stands for a slot that is born at query 1: it has no query of its own."""
    draws = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, n, 8, generator=draws) for n in (2, 3, 3))
    ours = attend_pieces(q, k, v, [*pieces(np.array([2, 2], np.int32)), Piece(1, 2, 2, 3)], 0.3)
    visible = torch.tensor([[True, False, False], [True, True, True]])
    torch.testing.assert_close(ours, sdpa(q, k, v, visible, scale=0.3))


def test_sixteen_bit_numbers_are_merged_in_thirty_two() -> None:
    draws, visible_until = torch.Generator().manual_seed(0), np.array([8, 8, 8, 6, 6, 6, 8, 8], np.int32)
    q, k, v = (torch.randn(1, 2, 8, 16, generator=draws, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    ours = attend_pieces(q, k, v, pieces(visible_until, 1), 0.25)
    plain = sdpa(q.float(), k.float(), v.float(), dense(visible_until), scale=0.25)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), plain, atol=2e-2, rtol=2e-2)
    assert torch.autograd.grad(ours.sum(), q)[0].dtype == torch.bfloat16


@st.composite
def lives(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Births and deaths of a row's tokens and of some columns that events made."""
    ends = draw(visibilities())
    n = len(ends)
    made = [sorted(draw(st.tuples(st.integers(0, n - 1), st.integers(1, n)))) for _ in range(draw(st.integers(0, 6)))]
    made = [(a, b) for a, b in made if a < b]
    births, deaths = ([pair[i] for pair in made] for i in (0, 1))
    return np.array([*range(n), *births], np.int32), np.array([*ends, *deaths], np.int32)


@given(lives(), st.integers(1, 9))
@settings(deadline=None)
def test_columns_that_events_made_are_seen_from_their_birth_to_their_death(lived: tuple, window: int) -> None:
    births, deaths = lived
    n = int((births == np.arange(len(births))).cumprod().sum())
    draws = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, n, 8, generator=draws)
    k, v = (torch.randn(1, 1, len(births), 8, generator=draws) for _ in range(2))
    rows = np.arange(n)[:, None]
    plain = sdpa(q, k, v, torch.from_numpy((births <= rows) & (rows < deaths)), scale=0.3, enable_gqa=True)
    ours = attend_pieces(q, k, v, pieces(deaths, window, births), 0.3)
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)


@given(lives())
@settings(deadline=None)
def test_the_flex_mask_of_such_columns_shows_the_same(lived: tuple) -> None:
    births, deaths = lived
    n = int((births == np.arange(len(births))).cumprod().sum())
    born, dead = flex_columns(births, deaths, n)
    mask = flex_mask(torch.from_numpy(dead), torch.from_numpy(born), len(flex_padded(deaths[:n]))).mask_mod
    rows, tokens = torch.arange(n), len(flex_padded(deaths[:n]))
    places = torch.cat([rows, tokens + torch.arange(len(births) - n)])
    seen = mask(torch.tensor(0), torch.tensor(0), rows[:, None], places)
    assert (seen.numpy() == ((births <= rows[:, None].numpy()) & (rows[:, None].numpy() < deaths))).all()
    shown = mask(torch.tensor(0), torch.tensor(0), rows[:, None], torch.arange(len(dead)))
    assert int(shown.sum()) == int(seen.sum())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_flex_mask_that_runs_on_cuda_shows_the_same_on_the_cpu() -> None:
    visible_until = np.array([6, 6, 4, 4, 6, 6, 9, 9, 9], np.int32)
    draws = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 9, 16, generator=draws) for _ in range(3))
    whole = flex_padded(visible_until)
    padded = (torch.nn.functional.pad(x, (0, 0, 0, len(whole) - 9)) for x in (q, k, v))
    flexed = flex_attention(*padded, block_mask=flex_mask(torch.from_numpy(whole)), scale=0.25)[:, :, :9]
    torch.testing.assert_close(flexed, row_attention(visible_until, CPU)(0, q, k, v, 0.25), atol=1e-5, rtol=1e-5)


def test_a_packed_row_computes_what_its_sequences_compute_alone() -> None:
    policy = tiny_model()
    ids = torch.randint(0, 259, (1, 9), generator=torch.Generator().manual_seed(1))
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    together = policy.hidden(ids, positions, row_attention(np.array([4] * 4 + [9] * 5, np.int32), CPU))
    first, second = policy.hidden(ids[:, :4], positions[:, :4]), policy.hidden(ids[:, 4:], positions[:, 4:])
    torch.testing.assert_close(together, torch.cat([first, second], 1), atol=1e-5, rtol=1e-5)


def test_a_model_that_asks_for_another_attention_is_refused_by_name() -> None:
    x = torch.zeros(1, 2, 3, 8)
    with pytest.raises(ModelError, match="sliding_window"):
        attention.attention(torch.nn.Identity(), x, x, x, None, sliding_window=4)
