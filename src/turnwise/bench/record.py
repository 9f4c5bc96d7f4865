"""Options in, a file of real rollouts out: a model plays BabyAI and says freely what it likes.

Rewards are drawn from the seed, since a model that was never trained on the level hardly ever wins; they have both
signs and a mean that is not 0, or the loss would cancel to almost nothing and hide what is compared.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

from turnwise.agents import Batch, rollout
from turnwise.config import EnvConfig, RunConfig, SamplingConfig
from turnwise.envs.babyai.env import ACTIONS
from turnwise.parts import Parts, assemble
from turnwise.runs import rollouts
from turnwise.types import Trajectory

LEVEL = "BabyAI-GoToRedBallNoDists-v0"


def record(
    folder: Path, model: str, groups: int, siblings: int, turns: int, max_tokens: int, seed: int
) -> tuple[Path, str]:
    """Play and save; returns the rollouts' file and the model that a variant has to load."""
    parts = assemble(_config(model, turns, max_tokens, seed))
    tasks = list(islice(parts.tasks.train(seed=seed), groups))
    played = asyncio.run(_play(parts, Batch(tasks, siblings, seed, 0)))
    draw = random.Random(seed)
    for trajectory in played:
        trajectory.reward = draw.uniform(-0.5, 1.0)
    path = folder / "rollouts.parquet"
    rollouts.save(path, 0, played)
    if model != "tiny":
        return path, model
    parts.policy.save(folder / "tiny")
    return path, str(folder / "tiny")


async def _play(parts: Parts, batch: Batch) -> list[Trajectory]:
    """Without `choices`, which are there for the tiny model's tokenizer only: what is said is not restricted."""
    free = replace(parts.sampling, choices=())
    return await rollout(batch, parts.environment, parts.engine, parts.renderer, free, parts.limits)


def _config(model: str, turns: int, max_tokens: int, seed: int) -> RunConfig:
    """Episodes end by their number of turns; the level's own limit lies behind it."""
    env = EnvConfig(
        args={"level": LEVEL, "max_steps": turns + 1},
        max_turns=turns,
        sampling=SamplingConfig(max_tokens=max_tokens, choices=list(ACTIONS)),
    )
    return RunConfig(model=model, seed=seed, device="cpu", env=env)
