"""Packing: what goes into a row, what is cut, and that entries still point at the same tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from played import played, tight, turn
from turnwise.rows import Row, pack, weigh
from turnwise.rows.cut import LOST, REPEATED, SPLIT, cut
from turnwise.trees import Tree, merge
from turnwise.types import Entries

Said = Sequence[tuple[list[int], list[int]]]
"""Prompt and completion of each turn."""
Pointed = tuple[int, int, int, int, float, tuple[int, ...]]


def line(length: int, who: int = 0) -> Tree:
    """A conversation of so many tokens whose last one was sampled."""
    (tree,) = merge([played(turn([10 + who] * (length - 1), [99], [-float(length)]))], [who])
    return tree


def pointed(ids: np.ndarray, e: Entries) -> list[Pointed]:
    """Of every entry: its token, the token that predicts it, and what it carries."""
    return [
        (
            int(ids[e.at[n]]),
            int(ids[e.source[n]]),
            int(e.trajectory[n]),
            int(e.turn[n]),
            float(e.sampler_logp[n]),
            tuple(e.support.of(n).tolist()),
        )
        for n in range(len(e))
    ]


def seen(row: Row | Tree) -> list[list[tuple[int, int]]]:
    """Of every token the tokens it can see, each with its position."""
    rows = np.arange(len(row))
    return [
        sorted((int(row.ids[j]), int(row.positions[j])) for j in rows[: i + 1] if row.visible_until[j] > i)
        for i in rows
    ]


def test_the_largest_trees_go_first_each_into_the_fullest_row_that_still_takes_it() -> None:
    rows, dropped = pack([line(2), line(3), line(5), line(3)], 6)
    assert [r.ids.tolist() for r in rows] == [[10] * 4 + [99], [10, 10, 99] * 2, [10, 99]]
    assert dropped == Counter()


def test_the_fullest_row_wins_over_the_first() -> None:
    rows, _ = pack([line(14, 0), line(10, 1), line(8, 2), line(2, 3)], 20)
    assert [r.entries.trajectory.tolist() for r in rows] == [[0], [1, 2, 3]]


def test_trees_without_entries_are_left_out() -> None:
    (silent,) = merge([played(turn([1, 2], []))])
    rows, _ = pack([silent, line(2)], 10)
    assert [r.ids.tolist() for r in rows] == [[10, 99]]
    assert pack([], 10) == pack([silent], 10) == ([], Counter())


def test_a_row_moves_entries_and_borders_of_its_later_trees() -> None:
    forked = merge([played(turn([1], [2, 3]), turn([1], [4]))])[0]
    (row,), _ = pack([forked, line(3)], 8)
    assert row.ids.tolist() == [1, 2, 3, 4, 10, 10, 99]
    assert row.positions.tolist() == [0, 1, 2, 1, 0, 1, 2]
    assert row.visible_until.tolist() == [4, 3, 3, 4, 7, 7, 7]
    assert (row.entries.at.tolist(), row.entries.source.tolist()) == ([1, 3, 2, 6], [0, 0, 1, 5])


def test_a_tree_over_the_budget_gives_its_branches_to_rows_of_their_own_and_loses_nothing() -> None:
    forked = merge([played(turn([1, 2], [3, 4, 5]), turn([1, 2], [6, 7]))])[0]
    rows, counts = pack([forked], 6)
    assert [r.ids.tolist() for r in rows] == [[1, 2, 3, 4, 5], [1, 2, 6, 7]]
    assert [r.positions.tolist() for r in rows] == [[0, 1, 2, 3, 4], [0, 1, 2, 3]]
    assert [p for r in rows for p in pointed(r.ids, r.entries)] == sorted(pointed(forked.ids, forked.entries))
    assert counts == Counter({SPLIT: 1, REPEATED: 2})


def test_a_path_longer_than_a_row_is_cut_on_the_right_and_what_it_loses_is_counted() -> None:
    forked = merge([played(turn([1, 2], [3, 4, 5]), turn([1, 2], [6, 7]))])[0]
    rows, counts = pack([forked], 3)
    assert [r.ids.tolist() for r in rows] == [[1, 2, 3], [1, 2, 6]]
    assert counts == Counter({LOST: 3, SPLIT: 1, REPEATED: 2})


def test_a_tree_whose_entries_all_lie_beyond_the_budget_is_dropped_and_counted() -> None:
    assert pack([line(9)], 8) == ([], Counter({LOST: 1}))


def test_for_several_ranks_rows_are_as_many_for_each_and_filled_evenly() -> None:
    rows, _ = pack([line(5), line(3), line(3), line(2), line(2), line(1 + 1)], 9, ranks=2)
    assert sorted(len(r) for r in rows) == [8, 9]
    assert [len(r) for r in pack([line(4), line(4)], 8, ranks=4)[0]] == [4, 4]


def test_weighing_hands_each_entry_its_trajectory_s_advantage_and_drops_those_without() -> None:
    (tree,) = merge([played(turn([1], [2, 3])), played(turn([1], [2, 4])), played(turn([1], [5]))], [3, 0, 1])
    weighed, silent = weigh(tree, np.array([0.5, np.nan, 9.0, -2.0], np.float32))
    e = weighed.entries
    assert (weighed.ids.tolist(), silent) == (tree.ids.tolist(), 1)
    assert list(zip(e.trajectory.tolist(), weighed.ids[e.at].tolist(), e.advantage.tolist(), strict=True)) == [
        (3, 2, -2.0),
        (0, 2, 0.5),
        (3, 3, -2.0),
        (0, 4, 0.5),
    ]
    assert tree.entries.advantage.tolist() == [0.0] * 5


few = st.integers(0, 3)
turns = st.tuples(st.lists(few, min_size=1, max_size=6), st.lists(few, max_size=4))


def forest(spec: Sequence[Said]) -> list[Tree]:
    """Trees of many shapes, every entry with its own numbers and support."""
    return [
        tree
        for who, said in enumerate(spec)
        for tree in merge(
            [
                played(
                    *(
                        turn(p, c, [-k for k in range(len(c))], support=tight(*([t] * (t % 3) for t in c)))
                        for p, c in said
                    )
                )
            ],
            [who],
        )
    ]


forests = st.lists(st.lists(turns, max_size=3), max_size=6).map(forest)


@given(forests, st.integers(1, 30))
def test_nothing_is_lost_and_no_row_is_over_the_budget(trees: list[Tree], budget: int) -> None:
    rows, dropped = pack(trees, budget)
    assert all(0 < len(r) <= budget and len(r.entries) for r in rows)
    assert sum(len(r.entries) for r in rows) + dropped[LOST] == sum(len(t.entries) for t in trees)
    assert dropped[LOST] == sum(int((t.positions[t.entries.at] >= budget).sum()) for t in trees)
    assert len(rows) <= sum(t.branches for t in trees if len(t.entries))


@given(forests, st.integers(1, 30))
def test_every_entry_still_points_at_its_token_and_sees_what_it_saw(trees: list[Tree], budget: int) -> None:
    rows, _ = pack(trees, budget)
    kept = [t.entries.take(t.positions[t.entries.at] < budget) for t in trees]
    before = [p for t, e in zip(trees, kept, strict=True) for p in pointed(t.ids, e)]
    assert sorted(p for r in rows for p in pointed(r.ids, r.entries)) == sorted(before)
    contexts = [seen(t)[at] for t, e in zip(trees, kept, strict=True) for at in e.at]
    assert sorted(seen(r)[at] for r in rows for at in r.entries.at) == sorted(contexts)


@given(forests, st.integers(1, 30))
def test_a_turn_s_path_holds_its_beginning_as_far_as_a_row_reaches(trees: list[Tree], budget: int) -> None:
    whole = {(p.trajectory, p.turn): t.ids[p.at].tolist() for t in trees for p in t.turns}
    rows, _ = pack(trees, budget)
    for row in rows:
        for path in row.turns:
            ids = row.ids[path.at].tolist()
            own = whole[path.trajectory, path.turn]
            assert own[: len(ids)] == ids
            assert len(path) == len(ids)
            assert len(ids) == min(len(own), budget)
            assert (row.positions[path.at] == np.arange(len(path))).all()


@given(forests, st.integers(1, 30), st.integers(1, 5))
def test_however_many_ranks_rows_hold_the_same_entries(trees: list[Tree], budget: int, ranks: int) -> None:
    one, many = (pack(trees, budget, n)[0] for n in (1, ranks))
    assert all(0 < len(r) <= budget for r in many)
    assert sorted(p for r in one for p in pointed(r.ids, r.entries)) == sorted(
        p for r in many for p in pointed(r.ids, r.entries)
    )


@given(forests, st.integers(1, 12))
def test_a_turn_s_entries_stay_together_beside_its_path_when_a_tree_is_split(trees: list[Tree], budget: int) -> None:
    for tree in trees:
        found, _ = cut(tree, budget)
        owned = [(p.trajectory, p.turn) for piece in found for p in piece.turns]
        assert sorted(owned) == sorted((p.trajectory, p.turn) for p in tree.turns)
        for piece in found:
            own = {(p.trajectory, p.turn): set(p.at.tolist()) for p in piece.turns}
            e = piece.entries
            assert all(at in own[who, n] for who, n, at in zip(e.trajectory, e.turn, e.at, strict=True))


@given(forests, st.integers(1, 12))
def test_branches_of_cut_trees_are_the_stretches_between_their_forks(trees: list[Tree], budget: int) -> None:
    for tree in trees:
        for piece in cut(tree, budget)[0]:
            again = merge([played(*(turn(piece.ids[p.at], []) for p in piece.turns))])
            if again and len(again[0]) == len(piece):
                assert (again[0].branches, again[0].visible_until.tolist()) == (
                    piece.branches,
                    piece.visible_until.tolist(),
                )


@given(forests)
def test_entries_come_sorted_by_the_token_that_predicts_them(trees: list[Tree]) -> None:
    for row in pack(trees, 40)[0]:
        assert row.entries.source.tolist() == sorted(row.entries.source.tolist())
