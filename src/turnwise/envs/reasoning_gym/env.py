"""In: replies. Out: a question of reasoning-gym, and the score its dataset gives the answer in a reply.

With several tries, a reply that is not wholly right is told so, and the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from turnwise.envs.extras import need
from turnwise.envs.reasoning_gym.mix import Part, parts, tasks
from turnwise.envs.worker import Worker
from turnwise.errors import ConfigError, DataError
from turnwise.types import Message, Observation, Task

SYSTEM = "Answer the question. Put the answer between <answer> and </answer>."
AGAIN = "This is not right. Try again."
ASK_S, SCORE_S = 300.0, 10.0
"""Seconds a question may take to be made (puzzles of seven houses take several), and an answer to be scored."""
ENTRY = Worker("turnwise.envs.reasoning_gym.entry:run", SCORE_S)
TAGS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ReasoningGym:
    """One question.

    datasets: the name of a dataset or of a mix ("rg-mix"), or a list of { name, weight, config }. seed: of the
    questions. tries: replies an episode may take. system: the system message, none if empty.
    """

    def __init__(
        self,
        datasets: str | Sequence[Mapping[str, Any]] = "rg-mix",
        seed: int = 0,  # noqa: ARG002 - a task knows it
        tries: int = 1,
        system: str = SYSTEM,
    ) -> None:
        if tries < 1:
            raise ConfigError(f"found tries {tries}; expected at least 1")
        _mix(datasets)
        self.tries = tries
        self.system = system
        self.task: Task | None = None
        self.done = False
        self.replies = 0
        self.entry = ""

    @staticmethod
    def tasks(datasets: str | Sequence[Mapping[str, Any]] = "rg-mix", seed: int = 0, **_: Any) -> Iterable[Task]:
        """Questions without end."""
        return tasks(_mix(datasets), seed)

    async def start(self, task: Task) -> Observation:
        """The question."""
        if self.task is not None:
            raise DataError("found an environment that was started before; expected a new one for every episode")
        self.task = task
        asked, right, self.entry = await ENTRY.call("ask", *self._which(), timeout_s=ASK_S)
        rules: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        hint: list[Message] = [{"role": "system", "content": f"The answer is {right}."}] if right else []
        return Observation([*rules, {"role": "user", "content": asked}], oracle=hint)

    async def step(self, message: Message) -> Observation:
        """Score the reply; the episode ends with the right answer or the last try."""
        if self.task is None or self.done:
            raise DataError(
                f"found a step {'after the end' if self.done else 'before the start'}; expected start, step, close"
            )
        self.replies += 1
        answer = extract(str(message.get("content") or ""))
        score, failed = await self._score(answer)
        self.done = score >= 1.0 or self.replies >= self.tries
        if not self.done:
            return Observation([{"role": "user", "content": AGAIN}])
        won = float(score >= 1.0)
        measured = {"success": won, "score": score, "tries": float(self.replies), "score_failed": failed}
        return Observation(reward=score, done=True, metrics={**measured, f"success_{self.task.data['dataset']}": won})

    async def close(self) -> None:
        """The process that makes questions stays for the next episode."""

    async def _score(self, answer: str) -> tuple[float, float]:
        """The score, and 1 if there is none: what takes too long, or breaks the dataset's own reading, is worth 0."""
        try:
            return float(await ENTRY.call("score", *self._which(), answer, self.entry)), 0.0
        except (TimeoutError, DataError):
            return 0.0, 1.0

    def _which(self) -> tuple[Any, ...]:
        assert self.task is not None
        data = self.task.data
        return data["dataset"], data["config"], data["seed"], data["index"]


def extract(reply: str) -> str:
    """The answer in a reply: what stands in the last <answer> tags, else its last line."""
    tagged = TAGS.findall(reply)
    if tagged:
        return str(tagged[-1]).strip()
    lines = [line for line in reply.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _mix(datasets: str | Sequence[Mapping[str, Any]]) -> list[Part]:
    """What a config names, checked against what the package has."""
    need("reasoning_gym", "reasoning_gym", "turnwise[reasoning-gym]")
    return parts(datasets, _known())


@cache
def _known() -> tuple[str, ...]:
    from reasoning_gym.factory import DATASETS

    return tuple(sorted(DATASETS))
