"""Functions that run elsewhere and may take too long."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from turnwise.envs.worker import Worker
from turnwise.errors import DataError

HERE = f"{Path(__file__).with_name('slow.py')}"


@pytest.fixture
def worker():
    made = Worker(f"{HERE}:answer", 30.0)
    yield made
    made.close()


def test_a_function_is_called_in_another_process_that_is_kept(worker: Worker) -> None:
    once, twice = worker.run("pid"), worker.run("pid")
    assert once == twice != os.getpid()
    assert asyncio.run(worker.call("echo", [1, "é\n", None])) == [1, "é\n", None]


def test_what_it_prints_is_no_answer_and_what_it_raises_is_told(worker: Worker) -> None:
    assert worker.run("print", 7) == 7
    with pytest.raises(DataError, match=r"slow\.py:answer failed: ValueError\('wrong'\)"):
        worker.run("raise")
    assert worker.run("echo", 1) == 1


def test_a_call_that_takes_too_long_is_ended_and_the_next_one_works(worker: Worker) -> None:
    before = worker.run("pid")
    with pytest.raises(TimeoutError, match=r"took over 0\.2 s"):
        worker.run("forever", timeout_s=0.2)
    assert worker.run("pid") != before


def test_a_process_that_ends_by_itself_is_an_error_and_the_next_call_works(worker: Worker) -> None:
    with pytest.raises(DataError, match="ended by itself, with code 3"):
        worker.run("exit")
    assert worker.run("echo", 1) == 1


def test_the_order_of_sets_is_the_same_in_every_process(worker: Worker) -> None:
    other = Worker(worker.place, 30.0)
    assert other.run("set") == worker.run("set")
    other.close()


def test_a_function_that_does_not_exist_is_an_error() -> None:
    worker = Worker(f"{HERE}:nothing", 30.0)
    with pytest.raises(DataError, match="ended by itself, with code 1"):
        worker.run()
    assert worker.idle == []
