"""`turnwise bench trees`, `rows` and `step` on small sizes: what they count is right, whatever they take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from played import played, turn
from turnwise.bench import rows, step, trees
from turnwise.bench.histories import Shape, by_break, by_turn, histories
from turnwise.bench.trees import distinct
from turnwise.cli.main import main
from turnwise.rows import pairs
from turnwise.types import Trajectory

DRIFTING = Shape(groups=3, siblings=2, turns=5, first=9, read=4, said=6, drift=0.5)


def read(trajectories: list[Trajectory]) -> list[list[list[int]]]:
    return [[t.prompt_ids.tolist() for t in trajectory.turns] for trajectory in trajectories]


def bench(tmp_path: Path, name: str, *words: str) -> dict[str, dict[str, Any]]:
    assert main(["bench", name, *words, "--json", str(tmp_path / "b.json")]) == 0
    return {case["name"]: case for case in json.loads((tmp_path / "b.json").read_text())["cases"]}


def test_histories_grow_by_what_is_said_and_read_and_siblings_share_their_first_prompt() -> None:
    found = histories(DRIFTING, 100, 0)
    assert [[len(p) for p in prompts] for prompts in read(found)] == [[9, 19, 29, 39, 49]] * 6
    assert [(t.group, t.sibling) for t in found] == [(g, s) for g in range(3) for s in range(2)]
    assert read(found)[0][0] == read(found)[1][0] != read(found)[2][0]
    assert read(found) == read(histories(DRIFTING, 100, 0)) != read(histories(DRIFTING, 100, 1))


def test_a_drifting_reply_comes_back_with_exactly_one_other_token() -> None:
    for t in histories(DRIFTING, 100, 0):
        for before, after in zip(t.turns[:-1], t.turns[1:], strict=True):
            stood = len(before.prompt_ids)
            assert (after.prompt_ids[:stood] == before.prompt_ids).all()
            assert (after.prompt_ids[stood : stood + 6] != before.completion_ids).sum() in (0, 1)
    assert len(by_break(histories(DRIFTING, 100, 0))) > 6


def test_a_history_is_cut_where_a_prompt_does_not_begin_with_what_stands() -> None:
    episode = played(turn([1], [2]), turn([1, 2, 3], [4]), turn([1, 2, 3, 5], [6]))
    assert read(by_break([episode])) == [[[1], [1, 2, 3]], [[1, 2, 3, 5]]]
    assert read(by_turn([episode])) == [[[1]], [[1, 2, 3]], [[1, 2, 3, 5]]]


def test_distinct_counts_each_token_under_each_context_once_a_group() -> None:
    one = played(turn([1, 2], [3]), turn([1, 2, 3, 4], [5]), turn([1, 2, 9], [3]))
    assert distinct([one, one]) == 7
    assert distinct([one, played(turn([1], [2]), group=1)]) == 9


def test_trees_forward_each_distinct_token_once_and_train_every_one(tmp_path: Path) -> None:
    words = ["--trajectories", "8", "--first", "40", "--read", "9", "--said", "7", "--repeats", "2"]
    found = bench(tmp_path, "trees", *words)
    assert [*found] == ["clean", "drift", "long", "group"]
    for case in found.values():
        assert case["tokens_forwarded"] == case["tokens_distinct"]
        for way in trees.WAYS:
            assert {*trees.FIGURES} <= {name.removeprefix(way) for name in case if name.startswith(way)}
            assert case[f"{way}tokens_trained"] == case[f"{way}tokens_eligible"] == case["tokens_eligible"]
            assert case[f"{way}ms_min"] <= case[f"{way}ms"] <= case[f"{way}ms_max"]
    assert (found["drift"]["samples"], found["drift"]["per_turn_samples"]) == (8, 8 * 12)
    assert found["drift"]["cut_tokens_forwarded"] > found["drift"]["tokens_forwarded"]
    assert found["clean"]["cut_tokens_forwarded"] == found["clean"]["tokens_forwarded"]


def test_the_rows_measured_are_what_their_names_say() -> None:
    small, long, forks = rows.shapes(4096).values()
    assert (pairs(small), pairs(long)) == (32 * 128 * 129 // 2, 4096 * 4097 // 2)
    assert len(np.unique(forks)) == 40
    assert (forks[:1638] == 4096).all() and (forks >= np.arange(1, 4097)).all()


def test_rows_are_measured_beside_a_dense_mask(tmp_path: Path) -> None:
    found = bench(tmp_path, "rows", "--tokens", "256", "--repeats", "2", "--threads", "1")
    assert [*found] == ["small_trees", "one_long", "forks_40"]
    for case in found.values():
        assert case["square"] == 256**2 > case["pairs"]
        assert case["vs_dense_both"] == pytest.approx(case["dense_ms_both"] / case["ms_both"])
        assert 0 < case["ms_forward_min"] <= case["ms_forward"] <= case["ms_forward_max"]


def test_a_step_on_trees_has_the_gradient_of_one_on_cut_samples_and_forwards_less(tmp_path: Path) -> None:
    words = ["--model", "tiny", "--trajectories", "2", "--turns", "3", "--repeats", "1", "--threads", "1"]
    found = bench(tmp_path, "step", *words, "--drift", "1.0")
    assert [*found] == ["drift", "group"]
    for case in found.values():
        assert case["grad_rel_diff"] < 1e-4
        assert case["trees_trained"] == case["cut_trained"]
        assert case["trees_forwarded"] < case["cut_forwarded"]
        assert case["trees_loss"] == pytest.approx(case["cut_loss"], rel=1e-4)
        assert {f"{way}_{figure}" for way in step.NAMES for figure in step.FIGURES} <= case.keys()
