"""Tasks are split by their own keys, and come in a fixed order."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.envs import TaskSet, find
from turnwise.envs.find import Environment
from turnwise.envs.tasks import side
from turnwise.errors import ConfigError, DataError
from turnwise.types import Task

FILE = Path(__file__).with_name("toy_env.py")


def toys(fraction: float = 0.3, seed: int = 0, name: str = "Toy", **args: Any) -> TaskSet:
    return TaskSet(find(f"{FILE}:{name}", args), fraction, seed)


def keys(tasks: TaskSet, n: int, skip: int = 0, seed: int = 0) -> list[str]:
    return [task.key for task in islice(tasks.train(skip, seed), n)]


class Listed:
    """An environment as far as a task set looks: its tasks are the keys it is given."""

    @staticmethod
    def tasks(keys: list[str]) -> list[Task]:
        return [Task(key) for key in keys]


def listed(keys: list[str], fraction: float, seed: int) -> TaskSet:
    return TaskSet(Environment("listed", Listed, {"keys": keys}), fraction, seed)


@given(st.lists(st.text(), unique=True, min_size=1), st.data(), st.floats(0.01, 1.0), st.integers())
def test_adding_tasks_moves_none_across(all_keys: list[str], data: st.DataObject, fraction: float, seed: int) -> None:
    some = data.draw(st.lists(st.sampled_from(all_keys), unique=True))
    before = {key for key in some if side(key, fraction, seed) == "test"}
    if before:
        after = {task.key for task in listed(all_keys, fraction, seed).holdout(len(all_keys))}
        assert {task.key for task in listed(some, fraction, seed).holdout(len(some))} == before == after & set(some)


@given(st.text(), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers())
def test_a_larger_fraction_only_adds_to_the_held_out_side(key: str, a: float, b: float, seed: int) -> None:
    assert side(key, 0.0, seed) == "train"
    assert side(key, 1.0, seed) == "test"
    assert (side(key, min(a, b), seed), side(key, max(a, b), seed)) != ("test", "train")


def test_the_split_is_the_same_on_every_machine() -> None:
    assert [n for n in range(20) if side(f"toy/{n}", 0.3, 0) == "test"] == [4, 5, 9, 13, 15, 16, 18, 19]
    assert [n for n in range(20) if side(f"toy/{n}", 0.3, 1) == "test"] == [1, 5, 12, 17, 18]


def test_the_fraction_held_out_is_about_the_one_asked_for() -> None:
    held_out = sum(side(f"task {n}", 0.2, 7) == "test" for n in range(10_000))
    assert 1900 < held_out < 2100


def test_both_sides_together_are_all_tasks_once() -> None:
    tasks = toys(size=30)
    held_out = [task.key for task in tasks.holdout(30)]
    train = keys(tasks, 30 - len(held_out))
    assert sorted(train + held_out) == sorted(f"toy/{n}" for n in range(30))


def test_the_held_out_tasks_are_always_the_same_first_ones() -> None:
    tasks = toys(size=30)
    assert tasks.holdout(3) == tasks.holdout(30)[:3]
    assert tasks.holdout(0) == []


def test_a_finite_source_comes_in_another_order_each_epoch() -> None:
    tasks = toys(size=30)
    size = 30 - len(tasks.holdout(30))
    epochs = [keys(tasks, size, skip=size * epoch) for epoch in range(4)]
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1


def test_the_order_depends_on_the_seed_alone() -> None:
    assert keys(toys(size=30), 50, seed=1) == keys(toys(size=30), 50, seed=1)
    assert keys(toys(size=30), 50, seed=1) != keys(toys(size=30), 50, seed=2)


def test_a_stream_that_ends_starts_again_reshuffled() -> None:
    tasks = toys(size=30, kind="stream")
    size = 30 - len(tasks.holdout(30))
    got = keys(tasks, 3 * size)
    first = [f"toy/{n}" for n in range(30) if side(f"toy/{n}", 0.3, 0) == "train"]
    assert got[:size] == first
    assert got[size:] == keys(toys(size=30), 2 * size, skip=size)


@pytest.mark.parametrize("kind", ["list", "stream"])
@pytest.mark.parametrize("skip", [0, 1, 17, 40])
def test_skip_goes_on_where_a_run_stopped(kind: str, skip: int) -> None:
    tasks = toys(size=20, kind=kind)
    assert keys(tasks, 25, skip=skip) == keys(tasks, 25 + skip)[skip:]


def test_an_endless_source_just_goes_on() -> None:
    tasks = TaskSet(find("babyai", {}), 0.2, 0)
    got = [task.data["seed"] for task in islice(tasks.train(skip=1000), 100)]
    assert got == sorted(set(got))
    assert not {task.data["seed"] for task in tasks.holdout(500)} & set(got)


@pytest.mark.parametrize("kind", ["list", "stream"])
def test_an_empty_side_of_a_finite_set_is_refused_with_the_numbers(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"has 2 tasks, of which holdout_fraction 0\.01 .* leaves none to evaluate"):
        toys(0.01, size=2, kind=kind).holdout(5)
    with pytest.raises(ConfigError, match=r"has 2 tasks, of which holdout_fraction 0\.99 .* leaves none to train"):
        next(toys(0.99, size=2, kind=kind).train())


def test_a_side_that_must_be_empty_is_refused_though_the_source_is_endless() -> None:
    with pytest.raises(ConfigError, match="holdout_fraction 1"):
        TaskSet(find("babyai", {}), 1.0, 0).train()
    with pytest.raises(ConfigError, match="holdout_fraction 0"):
        TaskSet(find("babyai", {}), 0.0, 0).holdout(1)


def test_a_key_that_comes_twice_is_refused() -> None:
    with pytest.raises(DataError, match="two tasks with the key 'toy/0'"):
        next(toys(name="Doubled", size=3).train())
