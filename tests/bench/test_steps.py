"""The variants of `turnwise bench train` on rollouts of the tiny model: the same loss, less or more to compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from turnwise.bench.record import record
from turnwise.bench.steps import Work, trees, turns
from turnwise.bench.trl import micro_batches, sequences, trl
from turnwise.errors import ConfigError, DataError
from turnwise.runs import rollouts
from turnwise.types import Task, Trajectory, Turn, TurnStop


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Work:
    """Log-probabilities are shifted, so that ratios are not 1 and some are clipped on either side."""
    folder = tmp_path_factory.mktemp("bench")
    path, model = record(folder, "tiny", groups=2, siblings=3, turns=3, max_tokens=8, seed=0)
    played, draw = rollouts.load(path), np.random.default_rng(0)
    for turn in (turn for t in played for turn in t.turns):
        turn.logprobs = turn.logprobs + draw.normal(0.0, 0.2, len(turn.logprobs)).astype(np.float32)
    rollouts.save(path, 0, played)
    return Work(Path(path), model, row_tokens=1024, threads=1)


def said(prompt: list[int], completion: list[int]) -> Turn:
    ids = np.array(completion, np.int32)
    return Turn(np.array(prompt, np.int32), ids, -ids.astype(np.float32), ids * 0, TurnStop.STOP)


def trajectory(*turns: Turn) -> Trajectory:
    return Trajectory("e", Task("t"), 0, 0, 0, turns=[*turns])


def test_one_sample_a_turn_has_the_same_loss_and_gradient_and_forwards_more(work):
    ours, theirs = trees(work)(), turns(work)()
    assert (theirs["loss"], theirs["grad_norm"]) == pytest.approx((ours["loss"], ours["grad_norm"]), rel=1e-5)
    assert theirs["trained"] == ours["trained"]
    assert theirs["forwarded"] > 2 * ours["forwarded"]


@pytest.mark.peer("trl")
def test_trl_has_the_same_loss_and_gradient(work):
    ours, theirs = trees(work)(), trl(work)()
    assert (theirs["loss"], theirs["grad_norm"]) == pytest.approx((ours["loss"], ours["grad_norm"]), rel=1e-5)
    assert theirs["trained"] == ours["trained"]


@pytest.mark.peer("trl")
def test_trl_takes_the_same_optimizer_step(work):
    ours, theirs = trees(work), trl(work)
    (first, second), (other, another) = [[step()["loss"] for _ in range(2)] for step in (ours, theirs)]
    assert (other, another) == pytest.approx((first, second), rel=1e-5)
    assert abs(second - first) > 1e-4


def test_a_row_too_short_for_a_group_is_refused(work):
    with pytest.raises(ConfigError, match=r"'dropped/over_budget/right': .*set --row-tokens above 64"):
        trees(Work(work.rollouts, work.model, row_tokens=64, threads=1))


def test_a_trajectory_is_one_sequence_with_its_sampled_tokens_marked():
    (one,) = sequences([trajectory(said([1, 2], [3]), said([1, 2, 3, 4], [5, 6]))], np.array([0.5], np.float32))
    assert (one.prompt.tolist(), one.completion.tolist()) == ([1, 2], [3, 4, 5, 6])
    assert (one.sampled.tolist(), one.logp.tolist(), one.advantage) == ([1, 0, 1, 1], [-3, 0, -5, -6], 0.5)


def test_a_turn_with_a_rewritten_history_is_refused():
    drifted = trajectory(said([1, 2], [3]), said([1, 9, 3, 4], [5]))
    with pytest.raises(DataError, match="does not continue"):
        sequences([drifted], np.array([0.5], np.float32))


def test_micro_batches_keep_to_the_budget_and_prompts_end_where_completions_begin():
    found = sequences([trajectory(said([1], [2])), trajectory(said([3, 4], [5])), trajectory(said([6, 7, 8], [9, 9]))],
                      np.array([1, 2, 3], np.float32))  # fmt: skip
    first, second = micro_batches(found, budget=6)
    assert (first["prompt_ids"].tolist(), first["completion_ids"].tolist()) == ([[6, 7, 8]], [[9, 9]])
    assert (second["prompt_ids"].tolist(), second["completion_ids"].tolist()) == ([[3, 4], [0, 1]], [[5], [2]])
    assert (second["prompt_mask"].tolist(), second["advantages"].tolist()) == ([[1, 1], [0, 1]], [2, 1])
    assert {int(part["num_items_in_batch"]) for part in (first, second)} == {4}
