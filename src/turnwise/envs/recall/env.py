"""In: turns and steps, one a reply. Out: what the agent sees of a hallway; only the first observation says which arm of
the T at its end to take, so whoever forgets it succeeds half of the time.

The system message holds rules alone: what has to be remembered stands in an ordinary observation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from random import Random
from typing import Any

from minigrid.core.constants import COLOR_NAMES

from turnwise.envs.babyai.env import parse
from turnwise.envs.babyai.render import describe
from turnwise.envs.recall.hallway import THINGS, Hallway, Niche
from turnwise.errors import ConfigError, DataError
from turnwise.types import Message, Observation, Task

ACTIONS = ("turn left", "turn right", "go forward")
"""What can be replied; the position in this list is MiniGrid's number of the action."""
SYSTEM = (
    f"You walk along a hallway and leave it at its end by one side. Reply with one action only: {', '.join(ACTIONS)}."
)
SIDES = ("left", "right")


class Recall:
    """One walk.

    lengths: the shortest and the longest hallway, in steps. distractors: things in niches along it. cues: how many ends
    are told apart, each with its side; with several, the end says only when reached which one it is. max_steps: actions
    an episode may take, enough for a detour of the hallway's length if None. time_cost: how much of the reward is lost
    by success at the last step.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (1, 5),
        distractors: int = 0,
        cues: int = 1,
        max_steps: int | None = None,
        time_cost: float = 0.0,
    ) -> None:
        _check(lengths, distractors, cues, max_steps, time_cost)
        self.lengths = lengths
        self.distractors = distractors
        self.cues = cues
        self.max_steps = max_steps or 2 * lengths[1] + 4
        self.time_cost = time_cost
        self.world: Hallway | None = None
        self.done = False
        self.invalid = 0
        self.asked: dict[str, str] = {}
        self.end = ""

    @staticmethod
    def tasks(lengths: Sequence[int] = (1, 5), distractors: int = 0, cues: int = 1, **_: Any) -> Iterable[Task]:
        """Hallways without end, one for each seed 0, 1, 2, ..."""
        kind = f"recall/{lengths[0]}-{lengths[1]}/{distractors}/{cues}"
        return (Task(f"{kind}/{seed}", {"seed": seed}) for seed in count())

    async def start(self, task: Task) -> Observation:
        """The rules, what to remember, and the first view."""
        if self.world is not None:
            raise DataError("found an environment that was started before; expected a new one for every episode")
        rng = Random(f"recall/{task.data['seed']}")
        length = rng.randint(*self.lengths)
        self.asked = {colour: rng.choice(SIDES) for colour in rng.sample(COLOR_NAMES, self.cues)}
        self.end = rng.choice([*self.asked])
        self.world = Hallway(length, _niches(rng, length, self.distractors), self.max_steps)
        self.world.reset(seed=0)
        said = "\n".join([*self._cues(), self._view()])
        return Observation([{"role": "system", "content": SYSTEM}, {"role": "user", "content": said}])

    async def step(self, message: Message) -> Observation:
        """Take the replied action and look; an arm of the T ends the walk, the wrong one with nothing."""
        if self.world is None or self.done:
            raise DataError(
                f"found a step {'after the end' if self.done else 'before the start'}; expected start, step, close"
            )
        feedback = self._act(parse(message, ACTIONS))
        taken, steps = self.world.taken, self.world.step_count
        self.done = taken is not None or steps >= self.max_steps
        seen = Observation([{"role": "user", "content": "\n".join([*feedback, self._view()])}], done=self.done)
        if self.done:
            won = taken == self.asked[self.end]
            seen.reward = 1.0 - self.time_cost * steps / self.max_steps if won else 0.0
            seen.metrics = {
                "success": float(won),
                f"success_length_{self.world.length}": float(won),
                "reached_end": float(taken is not None),
                "steps": float(steps),
                "invalid": float(self.invalid),
            }
        return seen

    async def close(self) -> None:
        """Nothing is held."""

    def _act(self, action: str | None) -> list[str]:
        """Change the world by one action, or by none, which costs a step too; what to say if nothing came of it."""
        assert self.world is not None
        if action is None:
            self.invalid += 1
            self.world.step_count += 1
            return [f"Invalid reply. Valid: {', '.join(ACTIONS)}."]
        before = (*self.world.agent_pos, self.world.agent_dir)
        self.world.step(ACTIONS.index(action))
        return [] if (*self.world.agent_pos, self.world.agent_dir) != before else [f"You can not {action}."]

    def _cues(self) -> list[str]:
        """What is said once: "At the end of the hallway turn left.", or one such line for each end that may come."""
        if self.cues == 1:
            return [f"At the end of the hallway turn {self.asked[self.end]}."]
        return [f"At a {colour} end turn {side}." for colour, side in self.asked.items()]

    def _view(self) -> str:
        """What is in sight; the end names its colour where that is asked about."""
        assert self.world is not None
        image = self.world.gen_obs()["image"]  # type: ignore[no-untyped-call]
        named = [f"This is a {self.end} end."] if self.cues > 1 and self.world.at_end else []
        return "\n".join([*named, describe(image)])


def _niches(rng: Random, length: int, distractors: int) -> list[Niche]:
    """Different places along the hallway, each with something in it; none beside the end, where the arms are."""
    places = [(steps, side) for steps in range(length) for side in (-1, 1)]
    return [(*place, rng.choice(THINGS)) for place in rng.sample(places, min(distractors, len(places)))]


def _check(lengths: Sequence[int], distractors: int, cues: int, max_steps: int | None, time_cost: float) -> None:
    """Refuse arguments out of range."""
    if len(lengths) != 2 or not 1 <= lengths[0] <= lengths[1]:
        raise ConfigError(f"found lengths {[*lengths]}; expected the shortest and the longest hallway, such as [1, 5]")
    if distractors < 0:
        raise ConfigError(f"found distractors {distractors}; expected 0 or more")
    if not 1 <= cues <= len(COLOR_NAMES):
        raise ConfigError(f"found cues {cues}; expected 1 to {len(COLOR_NAMES)}, one for each colour")
    if max_steps is not None and max_steps < lengths[1] + 2:
        raise ConfigError(
            f"found max_steps {max_steps}; expected at least {lengths[1] + 2}: the longest walk takes those"
        )
    if not 0.0 <= time_cost <= 1.0:
        raise ConfigError(f"found time_cost {time_cost}; expected a share of the reward in [0, 1]")
