"""A row a token: where it stands, who wrote it, what sampler and trainer say of it; null where there is nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broken import forgetful
from played import played, tight, turn
from turnwise.loop import train
from turnwise.rows import Row, Seen, pack
from turnwise.runs import RunFolder, rollouts, tokens
from turnwise.runs.columns import branches, columns
from turnwise.trees import merge
from turnwise.types import Attribution, Trajectory

KNOWN = Attribution(np.array([-1, 0, 0], np.int32), np.array([0, 1, -1], np.int8), ("tool",), ("look",))


def retold() -> Trajectory:
    """The second turn reads 4 again as 9 8; the third starts over."""
    first = turn([1, 2, 3], [4, 5], [-0.5, -0.25], attribution=KNOWN, support=tight([4, 6], []), versions=[3, 4])
    return played(first, turn([1, 2, 3, 9, 8, 5], [7], [-2.0]), turn([6], [1], [-3.0], agent="critic"))


def as_dict(table: pa.Table, *names: str) -> dict[str, list]:
    return {name: table[name].to_pylist() for name in names}


def test_each_token_stands_once_with_its_turn_branch_and_position():
    found = tokens.table(7, {5: retold()}, text=chr)
    assert as_dict(found, "id", "turn", "branch", "position", "agent") == {
        "id": [1, 2, 3, 4, 5, 9, 8, 5, 7, 6, 1],
        "turn": [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2],
        "branch": [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3],
        "position": [0, 1, 2, 3, 4, 3, 4, 5, 6, 0, 1],
        "agent": ["main"] * 9 + ["critic"] * 2,
    }
    assert set(found["step"].to_pylist()) == {7} and set(found["trajectory"].to_pylist()) == {5}
    assert found["text"].to_pylist() == [chr(i) for i in found["id"].to_pylist()]


def test_who_wrote_a_token_and_what_the_sampler_said_of_it():
    found = tokens.table(7, {0: retold()})
    sampled = as_dict(found.slice(0, 6), "role", "tool", "body", "kind", "sampler_logp", "version", "support")
    assert sampled == {
        "role": [None, "tool", "tool", "assistant", "assistant", None],
        "tool": [None, "look", "look", None, None, None],
        "body": [0, 1, None, 1, 1, None],
        "kind": ["context"] * 3 + ["sampled"] * 2 + ["context"],
        "sampler_logp": [None, None, None, -0.5, -0.25, None],
        "version": [None, None, None, 3, 4, None],
        "support": [None, None, None, 2, None, None],
    }
    assert found["text"].null_count == found["ratio"].null_count == len(found)


def test_a_turn_that_only_goes_on_opens_no_branch():
    (tree,) = merge([played(turn([1, 2], [3]), turn([1, 2, 3, 4], [5]), turn([1, 2, 3, 4], [6]))])
    assert branches(tree).tolist() == [0, 0, 0, 0, 1, 2]


def test_paths_lead_from_every_turn_to_its_tokens():
    trajectory = retold()
    found, paths = columns(trajectory)
    assert [found["id"][path].tolist() for path in paths] == [t.ids.tolist() for t in trajectory.turns]


IDS = st.lists(st.integers(0, 2), min_size=1, max_size=5)


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=6))
def test_columns_hold_every_token_once_in_as_many_branches_as_the_trees_have(parts):
    trajectory = played(*(turn(prompt, said) for prompt, said in parts))
    found, paths = columns(trajectory)
    trees = merge([trajectory])
    assert [found["id"][path].tolist() for path in paths] == [t.ids.tolist() for t in trajectory.turns]
    assert len(found["id"]) == sum(map(len, trees))
    assert (found["kind"] == "sampled").sum() == sum(len(t.entries) for t in trees)
    assert np.unique(found["branch"]).tolist() == list(range(sum(t.branches for t in trees)))


def row_of(*trajectories: Trajectory) -> Row:
    (row,), _ = pack(merge(list(trajectories)), 100)
    row.entries.advantage[:] = np.arange(len(row.entries)) + 1.0
    return row


def test_what_the_trainer_found_lands_on_the_token_it_was_found_for():
    """Siblings in one tree, packed with others: each keeps its own numbers."""
    one, two = retold(), played(turn([1, 2, 3], [4, 5], [-1.0, -1.0]), sibling=1)
    row = row_of(one, two)
    e = row.entries
    said = {"trainer_logp": e.sampler_logp + np.float32(0.5), "masked_high": (e.advantage > 2).astype(np.float32)}
    found = tokens.table(1, {0: one, 1: two}, [Seen(row, said)])
    assert found["kind"].to_pylist().count("sampled") == len(e) == 6
    for n in range(len(e)):
        own = [r for r in found.to_pylist() if r["advantage"] == e.advantage[n]]
        assert [(r["trajectory"], r["turn"], r["id"]) for r in own] == [(e.trajectory[n], e.turn[n], row.ids[e.at[n]])]
        assert own[0]["trainer_logp"] == pytest.approx(own[0]["sampler_logp"] + 0.5)
        assert own[0]["ratio"] == pytest.approx(np.exp(0.5)) and own[0]["weight"] == 1.0
        assert own[0]["masked_high"] == float(e.advantage[n] > 2) and own[0]["bonus"] is None
    context = [r for r in found.to_pylist() if r["kind"] == "context"]
    assert {r[name] for r in context for name in ("advantage", "trainer_logp", "ratio", "masked_high")} == {None}


def test_episodes_without_turns_have_no_tokens():
    assert len(tokens.table(1, {0: played()})) == 0


def test_a_run_exports_the_first_pass_of_the_steps_it_is_told(tmp_path: Path):
    train(forgetful(tmp_path, steps=3, passes=2))
    folder = RunFolder.open(tmp_path / "run")
    assert [p.name for p in folder.token_tables.iterdir()] == ["step-000002.parquet"]
    for number, trajectory in enumerate(rollouts.load(folder.rollout(2))):
        found = tokens.load(folder.tokens(2), number)
        sampled = found.filter(pa.compute.equal(found["kind"], "sampled"))
        assert len(sampled) == trajectory.sampled_tokens
        trained = [r for r in sampled.to_pylist() if r["trainer_logp"] is not None]
        assert len(trained) == trajectory.sampled_tokens
        # The group's second update sees weights that have moved; the first sees those that sampled.
        if trajectory.group == 0:
            assert max(abs(r["trainer_logp"] - r["sampler_logp"]) for r in trained) < 1e-4


def test_a_run_that_is_not_told_to_exports_nothing_and_its_numbers_are_the_same(tmp_path: Path):
    found = []
    for export in (0, 1):
        train(forgetful(tmp_path / str(export), steps=1, export=export))
        folder = RunFolder.open(tmp_path / str(export) / "run")
        clocks = ("time/", "perf/")
        found.append([{k: v for k, v in line.items() if not k.startswith(clocks)} for line in folder.metrics()])
        assert folder.token_tables.exists() == bool(export)
    assert found[0] == found[1]
