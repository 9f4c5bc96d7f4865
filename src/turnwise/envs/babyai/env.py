"""In: one action a reply, as text. Out: the mission, then after every action what the agent sees.

An invalid reply costs a step like any other, so every episode ends by the step limit at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import count
from typing import Any

from turnwise.envs.babyai.level import World, build, spec
from turnwise.envs.babyai.render import Image, describe
from turnwise.errors import ConfigError, DataError
from turnwise.types import Message, Observation, Task

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
"""What can be replied; the position in this list is MiniGrid's number of the action."""
FEEDBACK = "feedback"
LEVEL = "BabyAI-GoToRedBallNoDists-v0"
SYSTEM = "You walk through a grid world to fulfil the goal given first. Reply with one action only: {actions}."
ALL_SIX = " The last three act one step ahead; toggle opens doors and boxes."


class Babyai:
    """One episode of a level.

    level: gymnasium's name of it. max_steps: the step limit, the level's own if None. time_cost: how much of the
    reward is lost by success at the last step. on_invalid: "feedback" tells the agent which replies are valid; the name
    of an action has that action taken instead.
    """

    def __init__(
        self, level: str = LEVEL, max_steps: int | None = None, time_cost: float = 0.0, on_invalid: str = FEEDBACK
    ) -> None:
        spec(level)
        _check(max_steps, time_cost, on_invalid)
        self.level = level
        self.max_steps = max_steps
        self.time_cost = time_cost
        self.on_invalid = on_invalid
        self.world: World | None = None
        self.actions: tuple[str, ...] = ACTIONS
        self.done = False
        self.invalid = 0

    @staticmethod
    def tasks(level: str = LEVEL, **_: Any) -> Iterable[Task]:
        """Seeds 0, 1, 2, ... without end; of the constructor's arguments only the level matters here."""
        spec(level)
        return (Task(f"{level}/{seed}", {"seed": seed}) for seed in count())

    async def start(self, task: Task) -> Observation:
        """The rules, the mission and the first view."""
        if self.world is not None:
            raise DataError("found an environment that was started before; expected a new one for every episode")
        self.world = build(self.level, task.data["seed"])
        # The world ends its own episodes too; with one limit for both, its reward stays positive on every success.
        self.world.max_steps = self.max_steps or self.world.max_steps
        # A few levels know fewer actions, and those are the first ones.
        self.actions = ACTIONS[: self.world.action_space.n]
        if self.on_invalid not in (FEEDBACK, *self.actions):
            raise ConfigError(
                f"found on_invalid {self.on_invalid!r} on {self.level}; expected one of {[*self.actions]}, all it knows"
            )
        rules = SYSTEM.format(actions=", ".join(self.actions)) + (ALL_SIX if self.actions == ACTIONS else "")
        first = f"Goal: {self.world.mission}\n{describe(self.world.gen_obs()['image'])}"
        return Observation([{"role": "system", "content": rules}, {"role": "user", "content": first}])

    async def step(self, message: Message) -> Observation:
        """Take the replied action and look; a line of feedback comes first if nothing came of it."""
        if self.world is None or self.done:
            raise DataError(
                f"found a step {'after the end' if self.done else 'before the start'}; expected start, step, close"
            )
        action = parse(message, self.actions)
        if action is None:
            self.invalid += 1
            action = None if self.on_invalid == FEEDBACK else self.on_invalid
        feedback, won, image = self._act(action)
        steps, limit = self.world.step_count, self.world.max_steps
        self.done = self.done or won or steps >= limit
        content = "\n".join([*feedback, describe(image)])
        seen = Observation([{"role": "user", "content": content}], done=self.done)
        if self.done:
            seen.reward = 1.0 - self.time_cost * steps / limit if won else 0.0
            seen.metrics = {"success": float(won), "steps": float(steps), "invalid": float(self.invalid)}
        return seen

    async def close(self) -> None:
        """Free the world."""
        if self.world is not None:
            self.world.close()

    def _act(self, action: str | None) -> tuple[list[str], bool, Image]:
        """Change the world by one action, or by none: what to say if nothing happened, whether it won, and the view."""
        assert self.world is not None
        if action is None:
            self.world.step_count += 1
            return [f"Invalid reply. Valid: {', '.join(self.actions)}."], False, self.world.gen_obs()["image"]
        before = _state(self.world)
        seen, reward, self.done, _, _ = self.world.step(ACTIONS.index(action))
        return ([f"You can not {action}."] if _state(self.world) == before else []), reward > 0, seen["image"]


def parse(message: Message, actions: tuple[str, ...]) -> str | None:
    """The action a reply names, whatever its case and with or without a full stop: " Go forward." is "go forward"."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    word = content.strip().removesuffix(".").rstrip().lower()
    return word if word in actions else None


def _state(world: World) -> tuple[Any, ...]:
    """All that one action can change: where the agent stands and looks, what it holds, and what is ahead of it."""
    ahead = world.grid.get(*world.front_pos)
    return (*map(int, world.agent_pos), int(world.agent_dir), id(world.carrying), id(ahead), ahead and ahead.encode())


def _check(max_steps: int | None, time_cost: float, on_invalid: str) -> None:
    """Refuse arguments out of range."""
    if max_steps is not None and max_steps < 1:
        raise ConfigError(f"found max_steps {max_steps}; expected at least 1, or none for the level's own limit")
    if not 0.0 <= time_cost <= 1.0:
        raise ConfigError(f"found time_cost {time_cost}; expected a share of the reward in [0, 1]")
    choices = (FEEDBACK, *ACTIONS)
    if on_invalid not in choices:
        near = get_close_matches(on_invalid, choices, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(f"found on_invalid {on_invalid!r}{hint}; expected one of {list(choices)}")
