"""The harness, with variants small enough to be timed in milliseconds."""

from __future__ import annotations

import os
from itertools import count

import pytest

from turnwise.bench.measure import Measured, Variant, measure
from turnwise.errors import RunError


def counting(first: int):
    numbers = count(first)
    return lambda: {"number": next(numbers), "process": os.getpid()}


def holding(megabytes: int):
    def step() -> dict[str, float]:
        held = bytearray(os.urandom(1)) * (megabytes * 2**20)
        return {"bytes": len(held)}

    return step


def failing():
    def step() -> dict[str, float]:
        os._exit(7)

    return step


def test_variants_take_turns_after_the_warm_up():
    said: list[str] = []
    measure([Variant("a", counting, (0,)), Variant("b", counting, (0,))], 2, 1, said.append)
    assert [line.rsplit(" ", 2)[0] for line in said] == [
        *("warm-up 1/1: a", "warm-up 1/1: b"),
        *("repeat 1/2: a", "repeat 1/2: b", "repeat 2/2: a", "repeat 2/2: b"),
    ]


def test_warm_up_and_repeats_are_kept_apart():
    found = measure([Variant("a", counting, (10,))], 3, 2)["a"]
    assert ([w["number"] for w in found.warmup], found.values("number")) == ([10, 11], [12, 13, 14])


def test_every_variant_has_one_process_of_its_own():
    found = measure([Variant("a", counting, (0,)), Variant("b", counting, (0,))], 2)
    processes = {name: {*m.values("process")} for name, m in found.items()}
    assert len(processes["a"]) == len(processes["b"]) == len(processes["a"] | processes["b"] | {os.getpid()}) - 2


def test_a_repeat_is_timed():
    found = measure([Variant("a", counting, (0,))], 2)["a"]
    assert all(0.0 < seconds < 1.0 for seconds in found.values("seconds"))


def test_memory_that_a_variant_takes_is_seen_and_only_in_that_variant():
    found = measure([Variant("much", holding, (200,)), Variant("none", holding, (0,))], 1)
    assert 195 < found["much"].peak_mb - found["none"].peak_mb < 215


def test_median_and_spread_are_of_the_repeats_alone():
    one = Measured(warmup=[{"x": 99.0}], repeats=[{"x": 5.0}, {"x": 1.0}, {"x": 2.0}])
    assert (one.median("x"), one.spread("x")) == (2.0, (1.0, 5.0))


def test_a_variant_whose_process_ends_is_named():
    with pytest.raises(RunError, match=r"the process of variant 'c' ended with exit code 7; expected figures"):
        measure([Variant("c", failing)], 1)
