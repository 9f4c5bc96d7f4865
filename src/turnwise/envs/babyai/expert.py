"""In: a BabyAI task. Out: the conversation in which MiniGrid's own planner plays it.

The planner gives up on some levels (it never opens a box, say). That is part of the result, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from turnwise.envs.babyai.env import ACTIONS, Babyai
from turnwise.errors import ConfigError
from turnwise.types import Message, Task

REFUSALS = (AssertionError, DisappearedBoxError)
"""How the planner says that it knows no way on."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One episode of the planner; `refusal` says why it stopped early, None where it played to the end."""

    task: Task
    messages: list[Message]
    success: bool
    refusal: str | None


async def demonstrate(args: Mapping[str, Any], task: Task) -> Demonstration:
    """Play one task of `Babyai(**args)`: system, user, assistant "turn left", user, ... up to the last observation."""
    env = Babyai(**args)
    if not env.level.startswith("BabyAI-"):
        raise ConfigError(f"found level {env.level!r}; expected a BabyAI level, the only ones the planner can read")
    seen = await env.start(task)
    messages, success = list(seen.messages), 0.0
    plan = _Plan(env)
    while not seen.done and (action := plan.next()) is not None:
        reply: Message = {"role": "assistant", "content": action}
        seen = await env.step(reply)
        messages += [reply, *seen.messages]
        success = seen.metrics.get("success", 0.0)
    await env.close()
    return Demonstration(task, messages, success == 1.0, plan.refusal)


class _Plan:
    """The planner at work on a started environment; it watches the world itself."""

    def __init__(self, env: Babyai) -> None:
        self._world = env.world
        self._planner: Any = None
        self.refusal: str | None = None

    def next(self) -> str | None:
        """The next action, or None where the planner refuses."""
        try:
            self._planner = self._planner or BabyAIBot(self._world)
            number = int(self._planner.replan())
        except REFUSALS as error:
            self.refusal = f"{type(error).__name__}: {error}"
            return None
        if number < len(ACTIONS):
            return ACTIONS[number]
        self.refusal = "believes it is done"
        return None
