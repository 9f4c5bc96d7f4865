"""The account of a batch: every sampled token is trained, or counted with the reason why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from played import played, turn
from turnwise.config.run import AdvantageConfig, TrainConfig
from turnwise.train import batch
from turnwise.trees import advantages
from turnwise.types import BreakKind, Trajectory

GROUP, ALONE = TrainConfig(share="group"), TrainConfig(share="trajectory")


def counted(episodes: Sequence[Trajectory], config: TrainConfig, numbers: Sequence[int] | None = None) -> Counter[str]:
    advantage = advantages(episodes, AdvantageConfig())
    rows, counts = batch(episodes, advantage, list(range(len(episodes)) if numbers is None else numbers), config)
    assert counts["tokens_trained"] == sum(len(r.entries) for r in rows)
    assert counts["tokens_forwarded"] == sum(len(r) for r in rows)
    return counts


def pair(group: int, rewards: tuple[float, float] = (1.0, 0.0), error: str | None = None) -> list[Trajectory]:
    """Two siblings of two turns each that share their prompt 1 2; the first may have failed."""
    return [
        played(
            turn([1, 2], [3 + s, 5]),
            turn([1, 2, 3 + s, 5, 6], [7]),
            group=group,
            sibling=s,
            reward=reward,
            error=None if s else error,
        )
        for s, reward in enumerate(rewards)
    ]


def test_shared_tokens_are_forwarded_once() -> None:
    expected = {
        "tokens_eligible": 6,
        "tokens_trained": 6,
        "tokens_forwarded": 10,
        "tokens_distinct": 10,
        "tokens_by_turn": 20,
        "turns": 4,
        "branches": 3,
        "dropped/sampled_twice": 0,
        "dropped/no_signal": 0,
        "dropped/over_budget": 0,
        "dropped/failed": 0,
        **{f"prefix_mismatch/{kind}": 0 for kind in BreakKind},
    }
    assert counted(pair(0), GROUP) == expected
    assert counted(pair(0), ALONE) == expected | {"tokens_forwarded": 12, "tokens_distinct": 12, "branches": 2}


def test_groups_without_signal_and_failed_episodes_are_dropped_for_that_reason() -> None:
    counts = counted([*pair(0), *pair(1, (1.0, 1.0)), *pair(2, error="gone")], ALONE)
    assert (counts["tokens_eligible"], counts["tokens_trained"]) == (18, 6)
    assert (counts["dropped/no_signal"], counts["dropped/failed"]) == (9, 3)
    assert (counts["tokens_forwarded"], counts["tokens_distinct"]) == (12, 30)


def test_a_failed_sibling_leaves_the_others_of_its_tree_trained() -> None:
    three = [*pair(0, error="gone"), played(turn([1, 2], [8]), sibling=2, reward=1.0)]
    counts = counted(three, GROUP)
    assert (counts["tokens_eligible"], counts["tokens_trained"], counts["dropped/failed"]) == (7, 4, 3)


def test_a_token_sampled_twice_and_one_over_the_budget_are_counted_apart() -> None:
    again = played(turn([1, 2], [3, 4]), turn([1, 2], [3, 9]), group=0, reward=1.0)
    counts = counted([again, played(turn([1, 2], [8]), sibling=1)], TrainConfig(share="trajectory", row_tokens=4))
    dropped = {name: n for name, n in counts.items() if name.startswith("dropped/")}
    assert dropped == {
        "dropped/sampled_twice": 1,
        "dropped/no_signal": 0,
        "dropped/over_budget": 1,
        "dropped/failed": 0,
    }
    assert (counts["tokens_eligible"], counts["tokens_trained"]) == (5, 3)


def test_a_batch_without_any_signal_has_no_rows_and_the_same_names_in_its_account() -> None:
    counts = counted(pair(0, (1.0, 1.0)), GROUP)
    assert (counts["tokens_trained"], counts["tokens_forwarded"], counts["dropped/no_signal"]) == (0, 0, 6)
    assert counts.keys() == counted(pair(0), GROUP).keys()


def test_only_the_numbered_trajectories_are_taken_with_their_own_advantages() -> None:
    episodes = [*pair(0, (4.0, 0.0)), *pair(1, (1.0, 0.0))]
    rows, counts = batch(episodes, advantages(episodes, AdvantageConfig()), [3, 2], ALONE)
    (row,) = rows
    assert counts["tokens_eligible"] == 6
    assert set(zip(row.entries.trajectory.tolist(), row.entries.advantage.tolist(), strict=True)) == {
        (3, -0.5),
        (2, 0.5),
    }


few = st.integers(0, 2)
turns = st.tuples(st.lists(few, min_size=1, max_size=4), st.lists(few, max_size=3))
episode = st.tuples(st.lists(turns, max_size=3), st.integers(0, 2), st.integers(0, 1), st.booleans())


@given(st.lists(episode, max_size=6), st.integers(1, 12), st.sampled_from(["trajectory", "group"]))
def test_the_account_adds_up(spec: list[Any], budget: int, share: Any) -> None:
    episodes = [
        played(*(turn(p, c) for p, c in said), group=group, reward=reward, error="gone" if failed else None)
        for said, group, reward, failed in spec
    ]
    counts = counted(episodes, TrainConfig(row_tokens=budget, share=share))
    dropped = [n for name, n in counts.items() if name.startswith("dropped/")]
    assert counts["tokens_eligible"] == sum(t.sampled_tokens for t in episodes)
    assert counts["tokens_eligible"] == counts["tokens_trained"] + sum(dropped)
    assert min([*dropped, 0]) == 0


def test_weights_of_entries_are_one() -> None:
    (row,), _ = batch(pair(0), advantages(pair(0), AdvantageConfig()), [0, 1], GROUP)
    np.testing.assert_array_equal(row.entries.weight, np.ones(6, np.float32))


def test_a_group_over_the_budget_becomes_trees_of_its_halves_and_keeps_every_sibling() -> None:
    group = [played(turn([1, 2, 3, 4], [10 + n, 20, 30]), sibling=n, reward=float(n)) for n in range(4)]
    counts = counted(group, TrainConfig(row_tokens=12))
    assert (counts["tokens_trained"], counts["dropped/over_budget"]) == (12, 0)
    assert counts["tokens_forwarded"] == 2 * (4 + 2 * 3)
