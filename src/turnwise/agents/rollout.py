"""All episodes of a step: groups of siblings, one asyncio task an episode, none waiting for another."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from renderers import Renderer

from turnwise.agents.compaction import Plan
from turnwise.agents.episode import play
from turnwise.agents.limits import Limits, Rules
from turnwise.condense import Condensation, Shared
from turnwise.envs.find import Environment
from turnwise.types import Engine, EpisodeStop, Sampling, Task, Trajectory

FAILED = {EpisodeStop.ENV_ERROR, EpisodeStop.TIMEOUT, EpisodeStop.ENGINE_ERROR}
"""Ends that say nothing about the policy, and are worth another try."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What to play: each task `group` times; `seed` and `step` fix every draw."""

    tasks: Sequence[Task]
    group: int
    seed: int
    step: int
    retries: int = 0


def seed_of(*parts: int | str) -> int:
    """A 63-bit seed from what it stands for, the same on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


async def rollout(
    batch: Batch,
    environment: Environment,
    engine: Engine,
    renderer: Renderer,
    sampling: Sampling,
    limits: Limits,
    progress: Callable[[int, int], None] = lambda done, total: None,
    retried: Callable[[Trajectory], None] = lambda failed: None,
    compaction: Plan | None = None,
    *,
    rules: Rules = Rules(),  # noqa: B008 - frozen
    condense: Condensation | None = None,
) -> list[Trajectory]:
    """Trajectories by group and sibling, however the episodes finish; `retried` hears of attempts that are replaced.

    With `condense`, siblings share what they have condensed.
    """
    total = len(batch.tasks) * batch.group
    groups = [Shared() for _ in batch.tasks]
    done = 0

    async def one(group: int, sibling: int) -> Trajectory:
        nonlocal done
        for attempt in range(batch.retries + 1):
            seed = seed_of(batch.seed, batch.step, group, sibling, attempt)
            empty = Trajectory(environment.id, batch.tasks[group], group, sibling, seed)
            common = seed_of(batch.seed, batch.step, group)
            history = condense.history(groups[group], common, seed) if condense else None
            env = environment.new()
            played = await play(
                env, empty, engine, renderer, sampling, limits, compaction, rules=rules, history=history
            )
            played.metrics["retries"] = float(attempt)
            if played.stop_reason not in FAILED or attempt == batch.retries:
                break
            retried(played)
        done += 1
        progress(done, total)
        return played

    episodes = [asyncio.create_task(one(g, s)) for g in range(len(batch.tasks)) for s in range(batch.group)]
    try:
        return await asyncio.gather(*episodes)
    finally:
        await _end(episodes)
        for shared in groups:
            shared.close()


async def _end(episodes: Sequence[asyncio.Task[Trajectory]]) -> None:
    """When one episode has raised, the others are cancelled and have closed everything before the error goes on."""
    for episode in episodes:
        episode.cancel()
    await asyncio.gather(*episodes, return_exceptions=True)
