"""In: one reply. Out: whether the answer in it, boxed or the last number, equals the right one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from turnwise.envs.extras import need
from turnwise.envs.math.problems import load
from turnwise.envs.worker import Worker
from turnwise.errors import DataError
from turnwise.types import Message, Observation, Task

SYSTEM = "Solve the problem. Think step by step, then give the answer in \\boxed{}."
TIMEOUT_S = 5.0
"""Seconds an answer may be looked at."""
CHECK = Worker("turnwise.envs.math.check:check", TIMEOUT_S)


class Math:
    """One problem.

    path: a JSONL file, or a dataset of the Hugging Face hub. question, answer: the fields that hold them. split,
    config: which part of a dataset. system: the system message, none if empty.
    """

    def __init__(
        self,
        path: str,
        question: str = "problem",
        answer: str = "answer",
        split: str = "train",
        config: str | None = None,
        system: str = SYSTEM,
    ) -> None:
        need("math_verify", "math", "turnwise[math]")
        load(path, question, answer, split, config)
        self.system = system
        self.task: Task | None = None
        self.done = False

    @staticmethod
    def tasks(
        path: str,
        question: str = "problem",
        answer: str = "answer",
        split: str = "train",
        config: str | None = None,
        **_: Any,
    ) -> Iterable[Task]:
        """A task for each problem, under a key made from its text, so that the order of a file does not matter."""
        return [
            Task(f"math/{hashlib.sha256(asked.encode()).hexdigest()[:16]}", {"question": asked, "answer": right})
            for asked, right in load(path, question, answer, split, config)
        ]

    async def start(self, task: Task) -> Observation:
        """The problem."""
        if self.task is not None:
            raise DataError("found an environment that was started before; expected a new one for every episode")
        self.task = task
        rules: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        hint: Message = {"role": "system", "content": f"The answer is {task.data['answer']}."}
        return Observation([*rules, {"role": "user", "content": task.data["question"]}], oracle=[hint])

    async def step(self, message: Message) -> Observation:
        """Judge the reply; an answer that takes too long to read is wrong."""
        if self.task is None or self.done:
            raise DataError(
                f"found a step {'after the end' if self.done else 'before the start'}; expected start, step, close"
            )
        self.done = True
        try:
            right, said = await CHECK.call(self.task.data["answer"], str(message.get("content") or ""))
            late = False
        except TimeoutError:
            right, said, late = False, True, True
        measured = {"success": float(right), "answered": float(said), "timeout": float(late)}
        return Observation(reward=float(right), done=True, metrics=measured)

    async def close(self) -> None:
        """The process that checks answers stays for the next episode."""
