"""Laws of merging, against a trie of dicts that is slow and plain."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from played import played, turn
from turnwise.trees import Tree, merge
from turnwise.types import Trajectory

Spec = Sequence[Sequence[tuple[list[int], list[int]]]]
"""Prompt and completion of each turn of each trajectory."""
Path = tuple[int, ...]
"""The tokens from a root to a token, that token included: what says which token of a trie it is."""

few = st.integers(0, 2)
turns = st.tuples(st.lists(few, min_size=1, max_size=5), st.lists(few, max_size=4))
episodes = st.lists(st.lists(turns, max_size=4), max_size=3)


def build(spec: Spec) -> list[Trajectory]:
    """Trajectories whose log-probabilities say trajectory, turn and place, so that no two are equal."""
    return [
        played(
            *(turn(p, c, [-(100 * i + 10 * n + k + 1) for k in range(len(c))]) for n, (p, c) in enumerate(said)),
            sibling=i,
        )
        for i, said in enumerate(spec)
    ]


def reference(trajectories: Sequence[Trajectory]) -> tuple[set[Path], dict[tuple[Path, int], tuple[int, float]]]:
    """Every distinct context, and by context and trajectory the turn and log-probability that sampled it first."""
    nodes: set[Path] = set()
    sampled: dict[tuple[Path, int], tuple[int, float]] = {}
    for i, trajectory in enumerate(trajectories):
        for n, t in enumerate(trajectory.turns):
            ids = (*t.prompt_ids.tolist(), *t.completion_ids.tolist())
            nodes |= {ids[: k + 1] for k in range(len(ids))}
            for k, logp in enumerate(t.logprobs.tolist()):
                sampled.setdefault((ids[: len(t.prompt_ids) + k + 1], i), (n, logp))
    return nodes, sampled


def parents(tree: Tree) -> list[int]:
    """Of each token the nearest earlier one it can see that stands one position above it; -1 for the root."""
    found = []
    for i, position in enumerate(tree.positions.tolist()):
        above = [j for j in range(i) if tree.visible_until[j] > i and tree.positions[j] == position - 1]
        assert len(above) == (position > 0)
        found.append(above[0] if above else -1)
    return found


def paths(tree: Tree) -> list[Path]:
    found: list[Path] = []
    for token, parent in zip(tree.ids.tolist(), parents(tree), strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def entries(trees: Sequence[Tree]) -> dict[tuple[Path, int], tuple[int, float]]:
    """Every entry by context and trajectory; fails when one stands twice."""
    found: dict[tuple[Path, int], tuple[int, float]] = {}
    for tree in trees:
        path, e = paths(tree), tree.entries
        for at, who, n, logp in zip(e.at, e.trajectory, e.turn, e.sampler_logp, strict=True):
            assert (path[at], int(who)) not in found
            found[path[at], int(who)] = (int(n), float(logp))
    return found


@given(episodes)
def test_there_is_one_token_for_each_distinct_context(spec: Spec) -> None:
    trajectories = build(spec)
    found = [path for tree in merge(trajectories) for path in paths(tree)]
    assert len(found) == len(set(found))
    assert set(found) == reference(trajectories)[0]


@given(episodes)
def test_every_turn_can_be_read_back_along_parents(spec: Spec) -> None:
    trajectories = build(spec)
    found = {path for tree in merge(trajectories) for path in paths(tree)}
    for t in [t for trajectory in trajectories for t in trajectory.turns]:
        assert (*t.prompt_ids.tolist(), *t.completion_ids.tolist()) in found


@given(episodes)
def test_the_path_of_every_turn_holds_its_tokens_in_order(spec: Spec) -> None:
    trajectories = build(spec)
    found = {
        (p.trajectory, p.turn): (tree.ids[p.at].tolist(), tree.positions[p.at].tolist())
        for tree in merge(trajectories)
        for p in tree.turns
    }
    for i, trajectory in enumerate(trajectories):
        for n, t in enumerate(trajectory.turns):
            ids = [*t.prompt_ids.tolist(), *t.completion_ids.tolist()]
            assert found.pop((i, n)) == (ids, list(range(len(ids))))
    assert not found


@given(episodes)
def test_each_trajectory_has_one_entry_for_each_context_it_sampled(spec: Spec) -> None:
    trajectories = build(spec)
    assert entries(merge(trajectories)) == reference(trajectories)[1]


@given(episodes)
def test_a_token_is_visible_to_itself_and_to_what_comes_after_it_on_its_path_and_to_nothing_else(spec: Spec) -> None:
    for tree in merge(build(spec)):
        path, n = paths(tree), len(tree)
        rows = np.arange(n)
        visible = (rows[None] <= rows[:, None]) & (rows[:, None] < tree.visible_until[None])
        ancestry = [[path[i][: len(path[j])] == path[j] for j in range(n)] for i in range(n)]
        np.testing.assert_array_equal(visible, np.array(ancestry))


@given(episodes)
def test_positions_are_depths_and_sources_are_parents(spec: Spec) -> None:
    for tree in merge(build(spec)):
        above, e = parents(tree), tree.entries
        assert tree.positions.tolist() == [len(path) - 1 for path in paths(tree)]
        assert e.source.tolist() == [above[at] for at in e.at]
        assert (e.source >= 0).all() and e.source.tolist() == sorted(e.source.tolist())


@given(episodes)
def test_branches_are_the_stretches_between_forks(spec: Spec) -> None:
    for tree in merge(build(spec)):
        children = np.bincount([p for p in parents(tree) if p >= 0], minlength=len(tree))
        assert tree.branches == 1 + children[children > 1].sum()


@given(episodes, st.randoms(use_true_random=False))
def test_the_order_of_turns_and_trajectories_changes_nothing_but_numbering(spec: Spec, random: Random) -> None:
    numbered = [(i, n, t) for i, said in enumerate(spec) for n, t in enumerate(said)]
    random.shuffle(numbered)
    order = list(dict.fromkeys(i for i, _, _ in numbered))
    shuffled = [[t for i, _, t in numbered if i == who] for who in order]
    before, after = merge(build([spec[i] for i in range(len(spec)) if i in order])), merge(build(shuffled))
    assert sorted(map(sorted, map(paths, before))) == sorted(map(sorted, map(paths, after)))
    assert sorted((t.branches, len(t.entries)) for t in before) == sorted((t.branches, len(t.entries)) for t in after)
    kept = sorted(order)
    assert {(path, kept[i]) for path, i in entries(before)} == {(path, order[i]) for path, i in entries(after)}
