"""What rows cost, and how they are dealt to ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from played import played, turn
from turnwise.rows import Cost, Row, balance, pack, pairs, spread
from turnwise.trees import merge

(PLAIN,), _ = pack(merge([played(turn([1], [2]))]), 9)
TOKENS = Cost(1.0, 0.0)


def row(length: int) -> Row:
    ends = np.full(length, length, np.int32)
    return replace(PLAIN, ids=ends, positions=ends, visible_until=ends)


def lengths(shares: list[list[Row]]) -> list[list[int]]:
    return [[len(r) for r in share] for share in shares]


def test_pairs_are_what_tokens_see_however_a_row_is_made_up() -> None:
    visible_until = np.array([4, 2, 4, 4, 6, 6], np.int32)
    i, j = np.indices((6, 6))
    assert pairs(visible_until) == ((j <= i) & (i < visible_until[None])).sum() == 11


def test_a_cost_adds_tokens_and_pairs_and_a_wide_model_cares_less_for_pairs() -> None:
    assert Cost(2.0, 0.5)(row(4)) == 2 * 4 + 0.5 * 10
    assert Cost.of(1152).pair == Cost.of(576).pair / 2


def test_rows_are_dealt_to_whoever_has_least_and_exchanged_while_that_helps() -> None:
    assert lengths(balance([row(n) for n in (3, 3, 5, 3, 4)], 2, TOKENS)) == [[5, 4], [3, 3, 3]]
    assert lengths(balance([row(n) for n in (8, 7, 6, 5, 4)], 2, TOKENS)) == [[6, 5, 4], [8, 7]]


def test_ranks_without_a_row_are_counted() -> None:
    shares = balance([row(4)], 3, TOKENS)
    assert (lengths(shares), spread(shares, TOKENS)) == ([[4], [], []], {"rank_cost": 3.0, "rows_empty": 2.0})
    assert spread(balance([], 2)) == {"rank_cost": 1.0, "rows_empty": 0.0}


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 6))
def test_every_row_goes_to_one_rank_and_none_is_over_the_mean_by_more_than_a_row(sizes: list[int], ranks: int) -> None:
    rows = [row(n) for n in sizes]
    shares = balance(rows, ranks)
    assert sorted(id(r) for share in shares for r in share) == sorted(map(id, rows))
    assert lengths(shares) == lengths(balance(rows, ranks))
    costs = Cost().each(rows)
    loads = [Cost().each(share).sum() for share in shares]
    assert max(loads) <= costs.sum() / ranks + costs.max(initial=0) * (1 - 1 / ranks) + 1e-6


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_trees_of_many_lengths_leave_the_costliest_rank_within_five_percent_of_the_mean(ranks: int) -> None:
    draw = np.random.default_rng(ranks)
    trees = [merge([played(turn([1] * n, [2] * (n // 3)))])[0] for n in draw.integers(200, 3000, 96).tolist()]
    rows, _ = pack(trees, 4096, ranks)
    found = spread(balance(rows, ranks))
    assert found["rank_cost"] < 1.05
    assert found["rows_empty"] <= 2
