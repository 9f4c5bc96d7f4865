"""An environment of your own: find a number from 1 to 8 in four guesses."""

from itertools import count
from random import Random

from turnwise.types import Observation, Task


class Guess:
    @staticmethod
    def tasks():
        return (Task(f"guess/{n}", {"number": Random(n).randint(1, 8)}) for n in count())

    async def start(self, task):
        self.number, self.left = task.data["number"], 4
        return Observation([{"role": "user", "content": "Find my number from 1 to 8."}])

    async def step(self, message):
        self.left -= 1
        guess = int(message["content"])
        hint = "higher" if guess < self.number else "lower"
        won = guess == self.number
        said = [] if won else [{"role": "user", "content": hint}]
        return Observation(said, reward=float(won), done=won or self.left == 0)

    async def close(self): ...
