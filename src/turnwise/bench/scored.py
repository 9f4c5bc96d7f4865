"""Made-up histories in which a real model's log-probabilities stand for the sampler's, so that ratios are near 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from turnwise.bench.histories import Shape, histories
from turnwise.config.run import TinyConfig, TrainConfig
from turnwise.model import Policy, load, tiny
from turnwise.runs import rollouts
from turnwise.train import batch
from turnwise.train.step import score_row
from turnwise.types import Trajectory


def named(folder: Path, model: str, seed: int) -> str:
    """The model as another process can load it: the tiny one is built and saved first."""
    if model != "tiny":
        return model
    tiny.build([], TinyConfig(), seed, device="cpu").save(folder / "tiny")
    return str(folder / "tiny")


def save(path: Path, shape: Shape, model: str, row_tokens: int, seed: int) -> None:
    """Make up, score and write; log-probabilities are off by about a tenth, as after a few updates."""
    policy = load(model, device="cpu")
    found, draw = histories(shape, policy.vocab, seed), np.random.default_rng(seed)
    score(found, policy, row_tokens)
    for turn in (turn for t in found for turn in t.turns):
        shift = draw.normal(0.0, 0.1, len(turn.logprobs)).astype(np.float32)
        turn.logprobs = np.minimum(turn.logprobs + shift, np.float32(0.0))
    rollouts.save(path, 0, found)


@torch.no_grad()
def score(trajectories: Sequence[Trajectory], policy: Policy, row_tokens: int) -> None:
    """Write the policy's log-probability of every reply's tokens into the turns."""
    config = TrainConfig(row_tokens=row_tokens)
    rows, _ = batch(trajectories, np.ones(len(trajectories), np.float32), range(len(trajectories)), config)
    for row in rows:
        e, logp = row.entries, score_row(policy, row).logp_E.cpu().numpy()
        for entry, (who, n, at) in enumerate(zip(e.trajectory, e.turn, e.at, strict=True)):
            turn = trajectories[who].turns[n]
            turn.logprobs[row.positions[at] - len(turn.prompt_ids)] = logp[entry]
