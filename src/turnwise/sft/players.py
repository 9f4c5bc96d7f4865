"""Who plays the episodes of `turnwise sft-data`: the built-in engine, an endpoint, or the environment's expert."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from turnwise.agents import Batch, rollout
from turnwise.agents.rollout import seed_of
from turnwise.config.run import AdvantageConfig, RunConfig
from turnwise.config.sft import SftDataConfig
from turnwise.endpoint import Endpoint
from turnwise.envs import find
from turnwise.errors import ConfigError
from turnwise.imports import function
from turnwise.parts import assemble
from turnwise.sft.endpoint import play
from turnwise.sft.hint import Watched
from turnwise.types import EpisodeStop, Message, Task, Tool, Trajectory

EXPERTS = {"babyai": "turnwise.envs.babyai.expert:demonstrate"}
"""Environments that bring an expert of their own."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode, the tools it was played with, and how many of its first messages were hints."""

    played: Trajectory
    tools: list[Tool] | None = None
    hints: int = 0

    @property
    def messages(self) -> list[Message]:
        """What was said, without hints and up to the assistant's last word."""
        said = self.played.messages[self.hints :]
        last = max((n for n, m in enumerate(said) if m["role"] == "assistant"), default=-1)
        return said[: last + 1]


Play = Callable[[Task, int], Awaitable[Episode]]
"""Plays the numbered attempt at a task."""


def player(config: SftDataConfig) -> Play:
    """The one that the config names."""
    return {"engine": _engine, "endpoint": _endpoint, "expert": _expert}[config.source](config)


def _engine(config: SftDataConfig) -> Play:
    run = RunConfig(
        **{name: getattr(config, name) for name in ("seed", "model", "renderer", "dtype", "device", "tiny", "env")},
        advantage=AdvantageConfig(type="none"),
    )
    parts = assemble(run)

    async def play(task: Task, attempt: int) -> Episode:
        watched: list[Watched] = []

        def new(**_: object) -> Watched:
            watched.append(Watched(parts.environment.new(), hint=config.oracle))
            return watched[-1]

        batch = Batch([task], 1, seed_of(config.seed, task.key, attempt), 0, config.env.retries)
        environment = replace(parts.environment, make=new)
        played = await rollout(
            batch, environment, parts.engine, parts.renderer, parts.sampling, parts.limits, rules=parts.rules
        )
        return Episode(played[0], watched[-1].tools, watched[-1].hints)

    return play


def _endpoint(config: SftDataConfig) -> Play:
    environment = find(config.env.id, config.env.args)
    endpoint = Endpoint(config.endpoint)

    async def one(task: Task, attempt: int) -> Episode:
        watched = Watched(environment.new(), hint=config.oracle)
        empty = Trajectory(environment.id, task, 0, attempt, seed_of(config.seed, task.key, attempt))
        env = config.env
        played = await play(watched, empty, endpoint, env.sampling, env.max_turns, env.timeout_s)
        return Episode(played, watched.tools, watched.hints)

    return one


def _expert(config: SftDataConfig) -> Play:
    environment = find(config.env.id, config.env.args)
    place = config.expert or EXPERTS.get(config.env.id)
    if place is None:
        raise ConfigError(
            f"found source expert, and {config.env.id} has none; expected one of {', '.join(EXPERTS)}, or name "
            "your own: --expert file.py:function, an async function of (args, task) that returns messages, success and "
            "refusal"
        )
    demonstrate = function(place, "expert")

    async def play(task: Task, attempt: int) -> Episode:
        done = await demonstrate(environment.args, task)
        stop = EpisodeStop.DONE if done.refusal is None else EpisodeStop.NO_TOOL_CALL
        played = Trajectory(environment.id, task, 0, attempt, 0, messages=list(done.messages), stop_reason=stop)
        played.reward = float(done.success)
        return Episode(played)

    return play
