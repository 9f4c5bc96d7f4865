"""A small environment with more to read than a short context holds: who lives in which town, asked in the last line."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from turnwise.types import Message, Observation, Task

NAMES = ("Ada", "Ben", "Cleo", "Dov", "Eva", "Finn", "Gus", "Hal")
TOWNS = ("Arlen", "Brom", "Corva", "Dunes", "Elms", "Ford", "Gale", "Hythe")
FILLER = "The weather there is mild and the bread is good. Travellers praise the old bridge. "


class Shelf:
    """`passages` say who lives where; right is the town of the person asked about. `turns` replies an episode."""

    def __init__(self, passages: int = 4, turns: int = 1) -> None:
        self.passages = passages
        self.turns = turns
        self.played = 0
        self.answer = ""

    @staticmethod
    def tasks(passages: int = 4, **_: Any) -> Iterable[Task]:
        return [Task(f"shelf/{passages}/{n}", {"seed": n}) for n in range(64)]

    async def start(self, task: Task) -> Observation:
        draw = Random(f"shelf/{task.data['seed']}")
        towns = draw.sample(TOWNS, self.passages)
        people = draw.sample(NAMES, self.passages)
        asked = draw.randrange(self.passages)
        self.answer = towns[asked]
        told = [
            f"Passage {n + 1}: {p} lives in {t}. {FILLER}\n" for n, (p, t) in enumerate(zip(people, towns, strict=True))
        ]
        question = f"Question: where does {people[asked]} live?"
        extra = {"asked": people[asked]}
        return Observation([{"role": "user", "content": "".join(told) + question}], extra=extra)

    async def step(self, message: Message) -> Observation:
        self.played += 1
        right = self.answer in (message.get("content") or "")
        done = right or self.played >= self.turns
        again: list[Message] = [{"role": "user", "content": f"No, that is wrong. {FILLER}{FILLER}Try again."}]
        return Observation([] if done else again, reward=float(right), done=done, metrics={"success": float(right)})

    async def close(self) -> None: ...
