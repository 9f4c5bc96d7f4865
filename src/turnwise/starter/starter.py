"""Which box is it in? A few facts, one question, and a second try for less.

An environment lives for one episode: made, started with a task, stepped with each reply until it says done, closed.
"""

from collections.abc import Iterable
from itertools import count
from random import Random

from turnwise.types import Message, Observation, Task

BOXES = ("red", "green", "blue", "white", "black")
THINGS = ("key", "coin", "ring", "pen", "cup", "book", "shoe", "hat")


class Starter:
    """One question. facts: how many things are told. tries: replies an episode may take."""

    def __init__(self, facts: int = 1, tries: int = 2) -> None:
        self.facts = facts
        self.tries = tries
        self.answer = ""

    @staticmethod
    def tasks(facts: int = 1, tries: int = 2) -> Iterable[Task]:  # noqa: ARG004 - both take the same arguments
        """Tasks without end. Keys are unique; a hash of `split` decides whether a task is held out, so that what is
        asked there was never asked in training."""
        drawn = (_draw(Random(n), facts) for n in count())
        return (Task(f"starter/{facts}/{n}", data, split=data["question"]) for n, data in enumerate(drawn))

    async def start(self, task: Task) -> Observation:
        """What the agent reads first. `oracle` is what it is not told: see docs/echo.md and `turnwise sft-data`."""
        self.answer = task.data["answer"]
        question: Message = {"role": "user", "content": task.data["question"]}
        hint: Message = {"role": "system", "content": f"The answer is {self.answer}."}
        return Observation([question], oracle=[hint])

    async def step(self, message: Message) -> Observation:
        """What comes of a reply: new messages only, a reward, and whether it is over."""
        self.tries -= 1
        right = message["content"].strip() == self.answer
        if not right and self.tries:
            return Observation([{"role": "user", "content": "No. Try again."}])
        seen = Observation(done=True, metrics={"success": float(right), "tries_left": float(self.tries)})
        seen.reward = 0.5 + 0.5 * (self.tries > 0) if right else 0.0
        return seen

    async def close(self) -> None:
        """Nothing to free."""


def _draw(random: Random, facts: int) -> dict[str, str]:
    """One task's data: some things in some boxes, and one of them asked for."""
    things = random.sample(THINGS, facts)
    boxes = random.choices(BOXES, k=facts)
    asked = random.randrange(facts)
    told = " ".join(f"The {thing} is in the {box} box." for thing, box in zip(things, boxes, strict=True))
    return {"question": f"{told} Where is the {things[asked]}?", "answer": boxes[asked]}
