"""Columns that a config asks for beside the rollouts table's own."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from turnwise.agents.columns import absent, columns
from turnwise.errors import ConfigError
from turnwise.runs import rollouts
from turnwise.types import Task, Trajectory


def played(extra: dict, data: dict, metrics: dict) -> Trajectory:
    return Trajectory("e", Task("t", data), 0, 0, 0, metrics=metrics, extra=extra)


def test_extra_comes_before_task_data_and_that_before_metrics():
    found = columns([played({"a": "x"}, {"a": "y", "b": 1}, {"b": 2.0, "c": 3.0}), played({}, {}, {})], ["a", "b", "c"])
    assert found == {"a": ["x", None], "b": [1, None], "c": [3.0, None]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([True, False], [True, False]),
        (["a", "b"], ["a", "b"]),
        ([1, "a"], ["1", '"a"']),
        ([True, 2], ["true", "2"]),
        ([[1], {"k": None}], ["[1]", '{"k": null}']),
        ([Path("p"), None], ['"p"', None]),
    ],
)
def test_values_of_one_kind_stay_and_others_become_json(values, expected, tmp_path):
    found = columns([played({"x": value}, {}, {}) for value in values], ["x"])
    assert found == {"x": expected} and [type(v) for v in found["x"]] == [type(v) for v in expected]
    rollouts.save(tmp_path / "r.parquet", 0, [played({}, {}, {}) for _ in values], found)
    assert pq.read_table(tmp_path / "r.parquet")["x"].to_pylist() == expected


def test_a_column_in_which_nothing_stands_is_named():
    assert absent({"a": [None, None], "b": [None, 0]}) == ["a"]


def test_names_that_a_rollout_file_has_are_refused_before_anything_is_played():
    rollouts.free(["mine"])
    with pytest.raises(ConfigError, match=r"found \['seed'\] in env.save_columns"):
        rollouts.free(["seed", "mine"])
