"""In: an Environment. Out: its tasks, split for good into a train side and a held-out side.

A task's side depends on its own key alone (or on its `split`), so tasks that are added never move another across.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sized
from itertools import count, islice
from typing import Literal

from turnwise.envs.find import Environment
from turnwise.errors import ConfigError, DataError
from turnwise.types import Task

Side = Literal["train", "test"]


def side(key: str, fraction: float, seed: int) -> Side:
    """Which side a task is on: the hash of seed and key is a number in [0, 1), test is below `fraction`."""
    return "test" if _draw(f"{seed}:{key}") < fraction else "train"


class TaskSet:
    """The tasks of one environment; `fraction` of them are held out, chosen by a hash salted with `seed`."""

    def __init__(self, environment: Environment, fraction: float, seed: int) -> None:
        assert 0.0 <= fraction <= 1.0, f"found fraction {fraction}; expected a share in [0, 1]"
        self.environment = environment
        self.fraction = fraction
        self.seed = seed

    def train(self, skip: int = 0, seed: int = 0) -> Iterator[Task]:
        """Train-side tasks without end, from the one numbered `skip`.

        A source with a length is shuffled anew each epoch by `seed`. One without comes in its own order; should it
        end, it goes on as if it had a length: for tasks a, b, c that is a b c | c a b | b c a ...
        """
        if self.fraction >= 1.0:
            raise ConfigError("found holdout_fraction 1; expected less, since it leaves no task to train on")
        return islice(self._epochs(seed), skip, None)

    def holdout(self, n: int) -> list[Task]:
        """The first `n` held-out tasks, always the same ones; fewer where the source has fewer."""
        if n and not self.fraction:
            raise ConfigError("found holdout_fraction 0; expected more, since it leaves no task to evaluate on")
        tasks = list(islice(self._read(self.environment.tasks(), "test"), n))
        if n and not tasks:
            raise self._empty("evaluate on")
        return tasks

    def _epochs(self, seed: int) -> Iterator[Task]:
        source = self.environment.tasks()
        stream = not isinstance(source, Sized)
        if stream:
            yield from self._read(source, "train")
            source = self.environment.tasks()
        tasks = list(self._read(source, "train"))
        if not tasks:
            raise self._empty("train on")
        for epoch in count(int(stream)):
            yield from sorted(tasks, key=lambda task: _draw(f"{seed}:{epoch}:{task.key}"))

    def _read(self, source: Iterable[Task], wanted: Side) -> Iterator[Task]:
        """One pass over one side of the source, in its own order."""
        seen: set[str] = set()
        for task in source:
            if task.key in seen:
                raise DataError(
                    f"{self.environment.id} has two tasks with the key {task.key!r}; expected unique keys, since the "
                    "split hashes them (a source that ends is started again by itself)"
                )
            seen.add(task.key)
            if side(task.split or task.key, self.fraction, self.seed) == wanted:
                yield task

    def _empty(self, purpose: str) -> ConfigError:
        total = sum(1 for _ in self.environment.tasks())
        return ConfigError(
            f"{self.environment.id} has {total} tasks, of which holdout_fraction {self.fraction} with holdout_seed "
            f"{self.seed} leaves none to {purpose}; give it more tasks or change the fraction"
        )


def _draw(text: str) -> float:
    """A number in [0, 1) that depends on the text alone, on every machine; 53 bits, as many as a float holds."""
    return float((int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 11) / 2**53)
