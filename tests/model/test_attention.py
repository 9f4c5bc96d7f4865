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
from turnwise.model.attention import Block, blocks, flex_mask, flex_padded, row_attention
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


def test_a_fork_becomes_a_causal_block_and_one_that_sees_the_shared_prefix() -> None:
    assert blocks(np.array([6, 6, 4, 4, 6, 6], np.int32)) == [Block(0, 4, ()), Block(4, 6, ((0, 2),))]


@given(visibilities())
def test_blocks_show_each_query_exactly_what_the_interval_says(visible_until: np.ndarray) -> None:
    seen = torch.zeros(len(visible_until), len(visible_until), dtype=torch.bool)
    for block in blocks(visible_until):
        for a, b in block.seen:
            seen[block.start : block.end, a:b] = True
        own = slice(block.start, block.end)
        seen[own, own] = torch.ones(block.end - block.start, block.end - block.start).tril().bool()
    assert torch.equal(seen, dense(visible_until))


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


def test_a_long_block_behind_a_fork_is_cut_so_that_no_mask_is_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LONGEST_MASKED", 2)
    found = blocks(np.array([7, 7, 3, 7, 7, 7, 7], np.int32))
    assert found == [Block(0, 3, ()), Block(3, 5, ((0, 2),)), Block(5, 7, ((0, 2), (3, 5)))]


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
