"""Merging turns: the shapes that histories take, by whole values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from played import played, tight, turn
from turnwise.errors import DataError
from turnwise.trees import Tree, merge
from turnwise.types import Attribution, Support, Trajectory, Turn


def shape(tree: Tree) -> dict[str, Any]:
    """Everything that says where the tokens stand."""
    return {
        "ids": tree.ids.tolist(),
        "positions": tree.positions.tolist(),
        "visible_until": tree.visible_until.tolist(),
        "at": tree.entries.at.tolist(),
        "source": tree.entries.source.tolist(),
        "branches": tree.branches,
    }


def only(*trajectories: Trajectory) -> Tree:
    (tree,) = merge(trajectories)
    return tree


def test_a_clean_conversation_is_one_branch_and_repeats_nothing() -> None:
    tree = only(played(turn([1, 2], [3]), turn([1, 2, 3, 4], [5])))
    assert shape(tree) == {
        "ids": [1, 2, 3, 4, 5],
        "positions": [0, 1, 2, 3, 4],
        "visible_until": [5, 5, 5, 5, 5],
        "at": [2, 4],
        "source": [1, 3],
        "branches": 1,
    }


def test_another_history_branches_off_behind_what_is_shared() -> None:
    tree = only(played(turn([1, 2], [3]), turn([1, 2, 3, 4], [5]), turn([1, 2, 9], [6])))
    assert shape(tree) == {
        "ids": [1, 2, 3, 4, 5, 9, 6],
        "positions": [0, 1, 2, 3, 4, 2, 3],
        "visible_until": [7, 7, 5, 5, 5, 7, 7],
        "at": [2, 4, 6],
        "source": [1, 3, 5],
        "branches": 3,
    }


def test_drift_inside_a_reply_forks_at_the_first_other_token_and_every_sampled_token_keeps_its_numbers() -> None:
    said = turn([1], [5, 6, 7], [-0.1, -0.2, -0.3], versions=[3, 3, 4], support=tight([5, 8], [], [7, 9]))
    after = turn([1, 5, 6, 8, 2], [4], [-0.5], versions=[4], temperature=0.5, support=tight([4]))
    tree = only(played(said, after))
    assert shape(tree) == {
        "ids": [1, 5, 6, 7, 8, 2, 4],
        "positions": [0, 1, 2, 3, 3, 4, 5],
        "visible_until": [7, 7, 7, 4, 7, 7, 7],
        "at": [1, 2, 3, 6],
        "source": [0, 1, 2, 5],
        "branches": 3,
    }
    e = tree.entries
    np.testing.assert_array_equal(e.sampler_logp, np.array([-0.1, -0.2, -0.3, -0.5], np.float32))
    assert (e.version.tolist(), e.turn.tolist(), e.trajectory.tolist()) == ([3, 3, 4, 4], [0, 0, 0, 1], [0] * 4)
    assert (e.temperature.tolist(), e.weight.tolist(), e.advantage.tolist()) == ([1, 1, 1, 0.5], [1] * 4, [0] * 4)
    assert [e.support.of(n).tolist() for n in range(4)] == [[5, 8], [], [7, 9], [4]]


def test_a_sampled_token_that_opens_a_branch_is_predicted_by_the_token_before_the_fork() -> None:
    tree = only(played(turn([1, 2], [3, 4]), turn([1, 2], [5])))
    assert shape(tree) == {
        "ids": [1, 2, 3, 4, 5],
        "positions": [0, 1, 2, 3, 2],
        "visible_until": [5, 5, 4, 4, 5],
        "at": [2, 4, 3],
        "source": [1, 1, 2],
        "branches": 3,
    }


def test_a_rewritten_history_is_a_second_tree() -> None:
    first, second = merge([played(turn([1, 2], [3]), turn([8, 2], [3, 4]))])
    assert (first.ids.tolist(), second.ids.tolist()) == ([1, 2, 3], [8, 2, 3, 4])
    assert (first.entries.turn.tolist(), second.entries.turn.tolist()) == ([0], [1, 1])
    assert (second.entries.at.tolist(), second.entries.source.tolist()) == ([2, 3], [1, 2])


def test_interleaved_agents_each_go_on_in_their_own_tree() -> None:
    main, side = [turn([1], [2]), turn([1, 2, 3], [4])], turn([7], [8], agent="side")
    trees = merge([played(main[0], side, main[1])])
    assert [t.ids.tolist() for t in trees] == [[1, 2, 3, 4], [7, 8]]
    assert [t.entries.turn.tolist() for t in trees] == [[0, 2], [1]]
    assert [t.branches for t in trees] == [1, 1]


def test_what_siblings_sampled_alike_stands_once_and_each_keeps_its_own_entry() -> None:
    one = played(turn([1, 2], [3, 4], [-0.1, -0.2], versions=[5, 5]))
    two = played(turn([1, 2], [3, 6], [-0.3, -0.4], versions=[6, 6]), sibling=1)
    tree = only(one, two)
    assert tree.ids.tolist() == [1, 2, 3, 4, 6]
    e = tree.entries
    assert (e.at.tolist(), e.source.tolist()) == ([2, 2, 3, 4], [1, 1, 2, 2])
    assert (e.trajectory.tolist(), e.version.tolist()) == ([0, 1, 0, 1], [5, 6, 5, 6])
    np.testing.assert_array_equal(e.sampler_logp, np.array([-0.1, -0.3, -0.2, -0.4], np.float32))


def test_a_token_sampled_twice_over_the_same_prefix_by_one_trajectory_counts_once_by_its_first_turn() -> None:
    again = played(turn([1], [2, 3], [-0.1, -0.2]), turn([1], [2, 4], [-0.3, -0.4]))
    e = only(again).entries
    assert (e.at.tolist(), e.turn.tolist()) == ([1, 2, 3], [0, 0, 1])
    np.testing.assert_array_equal(e.sampler_logp, np.array([-0.1, -0.2, -0.4], np.float32))


def test_a_token_one_sibling_sampled_and_another_only_read_has_one_entry() -> None:
    wrote, read = played(turn([1], [2])), played(turn([1, 2], [3]), sibling=1)
    e = only(wrote, read).entries
    assert (e.at.tolist(), e.trajectory.tolist()) == ([1, 2], [0, 1])


def test_entries_carry_the_numbers_their_trajectories_are_given() -> None:
    trees = merge([played(turn([1], [2])), played(turn([5], [6]))], [7, 4])
    assert [t.entries.trajectory.tolist() for t in trees] == [[7], [4]]


def test_a_reply_of_nothing_adds_its_prompt_and_no_entry() -> None:
    tree = only(played(turn([1, 2], [])))
    assert (tree.ids.tolist(), len(tree.entries)) == ([1, 2], 0)


def test_no_trajectories_and_no_turns_make_no_trees() -> None:
    assert (merge([]), merge([played()])) == ([], [])


def test_a_retry_and_a_sub_agent_each_branch_off_where_their_context_differs() -> None:
    main = [turn([1, 2], [3]), turn([1, 2], [4]), turn([1, 2, 4, 6], [7])]
    helper = [turn([1, 9], [3], agent="helper"), turn([1, 9, 3, 5], [8], agent="helper")]
    tree = only(played(main[0], helper[0], main[1], helper[1], main[2]))
    assert tree.ids.tolist() == [1, 2, 3, 4, 6, 7, 9, 3, 5, 8]
    assert tree.visible_until.tolist() == [10, 6, 3, 6, 6, 6, 10, 10, 10, 10]
    assert sorted(zip(tree.entries.at.tolist(), tree.entries.turn.tolist(), strict=True)) == [
        (2, 0), (3, 2), (5, 4), (7, 1), (9, 3)
    ]  # fmt: skip


def test_rewards_and_metrics_of_every_turn_survive_and_are_found_from_an_entry() -> None:
    turns = [turn([1, 2], [3], reward=0.5, metrics={"s": 1.0}), turn([8], [4]), turn([1, 2, 3, 5], [6], reward=2.0)]
    episode = played(*turns)
    found = [int(n) for t in merge([episode]) for n in t.entries.turn]
    assert [(episode.turns[n].reward, episode.turns[n].metrics) for n in found] == [
        (0.5, {"s": 1.0}), (2.0, {}), (0.0, {})
    ]  # fmt: skip


def changed(**parts: Any) -> Turn:
    """A sound turn that reads two tokens and writes two, but for `parts`."""
    return replace(turn([1, 2], [3, 4]), **parts)


WHO = Attribution(np.zeros(2, np.int32), np.ones(2, np.int8), ("user",), (None,))


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (turn([], [3]), "turn 1: found 0 prompt tokens"),
        (turn([1], [3, 4], [-1.0]), "2 sampled tokens, 1 log-probabilities"),
        (turn([1], [3], versions=[0, 0]), "2 versions"),
        (turn([1], [3, 4], support=tight([3])), "1 supports"),
        (
            turn([1], [3, 4], [-1.0, np.nan]),
            "log-probability nan at sampled token 1; expected a finite one, 0 or below",
        ),
        (turn([1], [3, 4], [-np.inf, -1.0]), "log-probability -inf at sampled token 0"),
        (turn([1], [3, 4], [-1.0, 0.5]), "log-probability 0.5 at sampled token 1"),
        (turn([1], [3, 4], versions=[0, -1]), "policy version -1 at sampled token 1"),
        (turn([1, -7], [3]), "id -7 at prompt token 1; expected ids of 0 or more"),
        (turn([1], [3, -2]), "id -2 at sampled token 1"),
        (turn([1], [3, 4], support=tight([3], [5, 6])), "token 4 sampled at 1 from a support of 2 that does not hold"),
        (changed(support=Support(np.array([3, 4], np.int32), np.array([0, 2, 1], np.int32))), "support offsets"),
        (changed(prompt_ids=np.array([1.0, 2.0])), r"prompt_ids as float64 \(2,\); expected a flat array of int32"),
        (changed(completion_ids=[3, 4]), "completion_ids as list"),
        (changed(logprobs=np.zeros((2, 1), np.float32)), r"logprobs as float32 \(2, 1\)"),
        (changed(prompt_ids=np.ones(3, np.int32), attribution=WHO), "2 messages and 2 bodies for 3 prompt tokens"),
    ],
)
def test_parts_that_do_not_fit_are_refused_with_what_was_found(bad: Any, found: str) -> None:
    with pytest.raises(DataError, match=f"trajectory 1, turn 1: found .*{found.removeprefix('turn 1: found ')}"):
        merge([played(turn([1], [2], support=tight([2, 3]))), played(turn([1], [2]), bad)])


def test_a_log_probability_that_rounding_put_above_zero_is_taken() -> None:
    assert len(only(played(turn([1], [2], [1e-6]))).entries) == 1
