"""What a trainer sees of episodes whose history was rewritten is what the sampler saw, token by token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.agents import Batch, Limits, rollout
from turnwise.condense import condensation
from turnwise.config.condense import CondenseConfig
from turnwise.config.run import AdvantageConfig, TrainConfig
from turnwise.engine import LocalEngine
from turnwise.envs import find
from turnwise.model import Policy
from turnwise.testing import tiny_model
from turnwise.text import ChatML
from turnwise.train import batch
from turnwise.train.step import score_row
from turnwise.trees import advantages
from turnwise.types import Sampling, Trajectory

SHELF = f"{Path(__file__).parent / 'shelf.py'}:Shelf"
LIMITS = Limits(turns=3, tokens=900, timeout_s=60.0)


def played(policy: Policy, **config: Any) -> list[Trajectory]:
    """Two tasks, three siblings each, three turns of a few tokens, under a context limit that reading all breaks."""
    renderer, engine = ChatML(policy.tokenizer), LocalEngine(policy)
    given = {"max_context_tokens": 300, "min_tokens": 8, "ratio": 0.1, "extract": False, **config}
    plan = condensation(CondenseConfig.model_validate(given), renderer, engine, renderer)
    env = find(SHELF, {"passages": 4, "turns": 3})
    tasks = list(env.tasks())[:2]
    sampling = Sampling(max_tokens=6, stop_ids=(renderer.end,))
    found = asyncio.run(rollout(Batch(tasks, 3, 0, 0), env, engine, renderer, sampling, LIMITS, condense=plan))
    for number, trajectory in enumerate(found):
        trajectory.reward = float(number % 3)
    return found


@pytest.mark.parametrize(
    "config",
    [
        {"type": "drop"},
        {"type": "model", "chunk": {"tokens": 120}},
        {"type": "model", "chunk": {"tokens": 120}, "share": "group"},
        {"type": "drop", "chunk": {"type": "turns"}, "max_context_tokens": 0, "every_turns": 1},
    ],
)
@pytest.mark.parametrize("share", ["trajectory", "group"])
def test_the_trainer_s_log_probabilities_are_the_sampler_s_and_every_token_trains_once(config, share):
    policy = tiny_model(context=1024)
    trajectories = played(policy, **config)
    written = sum(t.agent == "summary" for p in trajectories for t in p.turns)
    assert all(t.error is None for t in trajectories) and (config["type"] == "model") == bool(written)
    assert written or sum(t.metrics["condense/condensations"] for t in trajectories) >= len(trajectories)
    rows, counts = batch(
        trajectories, advantages(trajectories, AdvantageConfig()), range(6), TrainConfig(share=share, row_tokens=4096)
    )
    apart = [np.abs(score_row(policy, row).logp_E.detach().numpy() - row.entries.sampler_logp).max() for row in rows]
    assert max(apart) < 1e-4
    lost = {name: n for name, n in counts.items() if name.startswith("dropped/") and n}
    # Siblings with reward 1 of 0, 1, 2 equal their group's mean, but that is an advantage of 0 and not none.
    assert lost == {} and counts["tokens_trained"] == sum(t.sampled_tokens for t in trajectories)


def test_summaries_share_the_trajectory_s_advantage_and_masked_ones_are_counted():
    policy = tiny_model(context=1024)
    trajectories = played(policy, type="model", chunk={"tokens": 120})
    advantage = advantages(trajectories, AdvantageConfig())
    written = sum(len(t.completion_ids) for p in trajectories for t in p.turns if t.agent == "summary")

    def entries(masked: tuple[str, ...]) -> tuple[dict[str, set[float]], int]:
        rows, counts = batch(trajectories, advantage, range(6), TrainConfig(), masked=masked)
        found: dict[str, set[float]] = {}
        for e in (row.entries for row in rows):
            for who, turn, value in zip(e.trajectory.tolist(), e.turn.tolist(), e.advantage.tolist(), strict=True):
                found.setdefault(trajectories[who].turns[turn].agent, set()).add(value)
        return found, counts["dropped/masked"]

    assert written and entries(()) == ({"main": {-1.0, 0.0, 1.0}, "summary": {-1.0, 0.0, 1.0}}, 0)
    assert entries(("summary",)) == ({"main": {-1.0, 0.0, 1.0}}, written)


def test_the_same_seed_condenses_the_same_whoever_is_first():
    once, again = (
        [[t.ids.tolist() for t in p.turns] for p in played(tiny_model(context=1024), type="model", share="group")]
        for _ in range(2)
    )
    assert once == again
