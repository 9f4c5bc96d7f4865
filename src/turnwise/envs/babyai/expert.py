"""In: a BabyAI task. Out: the conversation in which MiniGrid's own planner plays it.

The planner gives up on some missions (it opens no box, say), and fails at a few. Either is part of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from turnwise.envs.babyai.env import ACTIONS, Babyai
from turnwise.envs.babyai.level import World
from turnwise.errors import ConfigError
from turnwise.types import Message, Task

REFUSALS = (AssertionError, DisappearedBoxError, RecursionError)
"""How the planner says that it knows no way on."""
MAX_SEARCHES = 100
"""Path searches before one action. Where the planner finds a way it makes 15 at most; elsewhere it may never stop."""


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
    plan = _Plan(env.world)
    while not seen.done and (action := plan.next()) is not None:
        reply: Message = {"role": "assistant", "content": action}
        seen = await env.step(reply)
        messages += [reply, *seen.messages]
        success = seen.metrics.get("success", 0.0)
    await env.close()
    return Demonstration(task, messages, success == 1.0, plan.refusal)


class _Plan:
    """What the planner would do next in a world that it watches by itself."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._planner: Any = None
        self.refusal: str | None = None

    def next(self) -> str | None:
        """The next action, or None where the planner refuses."""
        try:
            self._planner = self._planner or _Planner(self._world)
            number = self._planner.act()
        except REFUSALS as error:
            self.refusal = f"{type(error).__name__}: {error}"
            return None
        if number < len(ACTIONS):
            return ACTIONS[number]
        self.refusal = "the planner takes the mission for done"
        return None


class _Planner(BabyAIBot):
    """MiniGrid's planner, stopped where it would search without end. Its methods carry no types."""

    def __init__(self, world: World) -> None:
        super().__init__(world)  # type: ignore[no-untyped-call]
        self._last = 0

    def act(self) -> int:
        """The number of the next action."""
        self._last = self.bfs_counter + MAX_SEARCHES
        return int(self.replan())  # type: ignore[no-untyped-call]

    def _breadth_first_search(self, *args: Any, **kwargs: Any) -> Any:
        if self.bfs_counter >= self._last:
            raise RecursionError(f"no action after {MAX_SEARCHES} searches")
        return super()._breadth_first_search(*args, **kwargs)  # type: ignore[no-untyped-call]
