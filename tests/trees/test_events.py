"""Merging turns that events struck: a token is another one where another cache computed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from played import played, tight, turn
from turnwise.errors import DataError
from turnwise.rows import pack
from turnwise.rows.cut import cut
from turnwise.trees import Tree, merge
from turnwise.types import Event, Trajectory


def event(at: int, start: int, end: int, slots: int = 0, queries: tuple[int, ...] = (), **more: Any) -> Event:
    kept = np.zeros((1, 1, slots), np.int16)
    return Event(at, start, end, more.pop("method", "match"), kept, np.array(queries, np.int32), **more)


def only(*trajectories: Trajectory) -> Tree:
    (tree,) = merge(trajectories)
    return tree


def strikes(tree: Tree) -> list[tuple[int, int]]:
    return [(s.at, s.until) for s in tree.strikes]


def test_a_region_is_visible_until_the_first_token_computed_after_its_event() -> None:
    tree = only(played(turn([1, 2, 3], [4, 5, 6], events=(event(4, 1, 3, 1),))))
    assert (tree.ids.tolist(), tree.visible_until.tolist()) == ([1, 2, 3, 4, 5, 6], [6, 4, 4, 6, 6, 6])
    assert (tree.ends.tolist(), strikes(tree)) == ([6] * 6, [(4, 6)])
    assert (tree.entries.at.tolist(), tree.entries.source.tolist()) == ([3, 4, 5], [2, 3, 4])


def test_an_event_that_strikes_when_a_turn_is_over_repeats_nothing() -> None:
    later = turn([1, 2, 3, 4, 5, 6], [7], events=(event(4, 1, 3),))
    tree = only(played(turn([1, 2, 3], [4, 5]), later))
    assert (tree.ids.tolist(), tree.branches) == ([1, 2, 3, 4, 5, 6, 7], 1)
    assert (tree.visible_until.tolist(), strikes(tree)) == ([7, 4, 4, 7, 7, 7, 7], [(4, 7)])
    assert tree.entries.turn.tolist() == [0, 0, 1]


def test_siblings_branch_where_their_events_differ_and_the_one_with_more_of_them_comes_last() -> None:
    struck = played(turn([1, 2, 3], [4, 5, 6], events=(event(4, 1, 3),)))
    spared = played(turn([1, 2, 3], [4, 5, 6]), sibling=1)
    tree = only(struck, spared)
    assert tree.ids.tolist() == [1, 2, 3, 4, 5, 6, 5, 6]
    assert tree.visible_until.tolist() == [8, 6, 6, 8, 6, 6, 8, 8]
    assert strikes(tree) == [(6, 8)]
    assert sorted(zip(tree.entries.at.tolist(), tree.entries.trajectory.tolist(), strict=True)) == [
        (3, 0), (3, 1), (4, 1), (5, 1), (6, 0), (7, 0)
    ]  # fmt: skip


def test_siblings_with_equal_events_share_what_follows() -> None:
    group = [
        played(turn([1, 2, 3], [4, 5, end], events=(event(4, 1, 3, ms=float(end)),)), sibling=end) for end in (6, 7)
    ]
    assert only(*group).ids.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_read_again_is_a_branch_of_its_own_that_ends_the_first_one_with_the_token_drawn_there() -> None:
    again = event(4, 1, 3, queries=(0, 3), method="delete_reread")
    tree = only(played(turn([1, 2, 3], [4, 5, 6], [-0.1, -0.2, -0.3], events=(again,))))
    assert (tree.ids.tolist(), tree.positions.tolist()) == ([1, 2, 3, 4, 5, 4, 5, 6], [0, 1, 2, 3, 4, 1, 2, 3])
    assert tree.visible_until.tolist() == [8, 5, 5, 5, 5, 8, 8, 8]
    assert (tree.entries.at.tolist(), tree.entries.source.tolist()) == ([3, 4, 7], [2, 3, 6])
    np.testing.assert_array_equal(tree.entries.sampler_logp, np.array([-0.1, -0.2, -0.3], np.float32))
    assert [(p.at.tolist(), p.index.tolist()) for p in tree.turns] == [
        ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        ([6, 7], [4, 5]),
    ]
    (row,) = pack([tree], 99)[0]
    assert row.struck.tolist() == [False] * 6 + [True, True]


def test_events_behind_one_that_read_again_count_in_what_was_read_again() -> None:
    first = event(4, 1, 3, queries=(0, 3), method="delete_reread")
    second = event(6, 1, 3, 1, queries=(3, 5))
    tree = only(played(turn([1, 2, 3], [4, 5, 6, 7, 8], events=(first, second))))
    (late,) = [s.event for s in tree.strikes if s.event.method == "match"]
    assert (late.at, late.queries.tolist()) == (4, [1, 3])  # of 1 4 5 6 7 8


def test_an_event_that_reads_again_once_a_turn_is_over_ends_it() -> None:
    again = event(4, 1, 3, queries=(0, 3), method="delete_reread")
    one, two = turn([1, 2, 3], [4, 5]), turn([1, 2, 3, 4, 5, 9], [6], events=(again,))
    for first in (one, replace(one, events=(again,))):
        tree = only(played(first, two))
        assert tree.ids.tolist() == [1, 2, 3, 4, 5, 4, 5, 9, 6]
        assert tree.entries.turn.tolist() == [0, 0, 1]


def test_tokens_that_were_told_and_not_drawn_have_no_entry() -> None:
    told = np.array([False, True, True, False])
    spoken = turn([1], [2, 3, 4, 5], [-1.0, 0.0, 0.0, -2.0], injected=told, support=tight([2], [], [], [5, 6]))
    tree = only(played(spoken))
    assert (tree.entries.at.tolist(), tree.entries.source.tolist()) == ([1, 4], [0, 3])
    assert [tree.entries.support.of(n).tolist() for n in range(2)] == [[2], [5, 6]]
    assert played(spoken).sampled_tokens == 2


def test_a_cut_keeps_events_and_the_path_they_look_back_on() -> None:
    prefix, body = event(3, 0, 2, 1, queries=(0, 1)), event(6, 1, 4)
    group = [played(turn([1, 2, 3, 4], [5, 6, n, 8], events=(prefix, body)), sibling=n) for n in (10, 11, 12)]
    tree = only(*group)
    whole = {n: merge([one])[0] for n, one in enumerate(group)}
    pieces, _ = cut(tree, 10)
    assert len(pieces) > 1
    for piece in pieces:
        for path in piece.turns:
            alone, at = whole[path.trajectory], path.at
            assert piece.ids[at].tolist() == alone.ids.tolist()
        (one,) = {s.event.at for s in piece.strikes if s.at == 3}
        assert one == 3
    assert pieces[0].visible_until[:2].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        ((event(0, 0, 0),), "event at token 0 of 6"),
        ((event(6, 1, 3),), "event at token 6 of 6"),
        ((event(4, 1, 3), event(3, 1, 2)), "expected events in the order of their tokens, 4 to 5"),
        ((replace(event(4, 1, 3), kept=np.zeros((1, 0), np.int16)),), r"kept \(1, 0\)"),
        ((event(4, 1, 3, 1, queries=(5,)),), "queries of token 5; expected earlier ones"),
        ((event(4, 1, 7),), r"columns \[1, 7\) of 4"),
    ],
)
def test_events_that_do_not_fit_their_turn_are_refused(bad: tuple[Event, ...], found: str) -> None:
    with pytest.raises(DataError, match=found):
        merge([played(turn([1, 2, 3], [4, 5, 6], events=bad))])
