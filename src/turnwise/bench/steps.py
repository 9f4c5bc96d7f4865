"""A file of rollouts to the optimizer step that `turnwise bench train` times: as packed trees, or one sample a turn.

Both are our own trainer on the same tokens; only what is merged differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from turnwise.bench.measure import Step
from turnwise.config.loss import GrpoConfig
from turnwise.config.run import AdvantageConfig, TrainConfig
from turnwise.errors import ConfigError
from turnwise.losses import choose
from turnwise.model import load
from turnwise.rows import Row
from turnwise.runs import rollouts
from turnwise.train import Tally, Trainer, batch
from turnwise.trees import advantages
from turnwise.types import Floats, Trajectory

LOSS = GrpoConfig(low=0.2, high=0.28)


@dataclass(frozen=True, slots=True)
class Work:
    """What every variant is given: the rollouts, the model, and the most tokens a forward pass may hold."""

    rollouts: Path
    model: str
    row_tokens: int
    threads: int

    @property
    def config(self) -> TrainConfig:
        return TrainConfig(row_tokens=self.row_tokens, threads=self.threads)

    def read(self) -> tuple[list[Trajectory], Floats]:
        """The trajectories and their advantages, here the rewards as they are; sets the threads of this process."""
        if self.threads:
            torch.set_num_threads(self.threads)
        trajectories = rollouts.load(self.rollouts)
        return trajectories, advantages(trajectories, AdvantageConfig(type="none"))


def trees(work: Work) -> Step:
    """Every group is one tree: what siblings and turns have in common is forwarded once."""
    trajectories, advantage = work.read()
    return _step(work, trajectories, advantage, "group")


def turns(work: Work) -> Step:
    """Every turn is a sample of its own: its prompt is forwarded again each time."""
    trajectories, advantage = work.read()
    samples = [replace(t, turns=[turn]) for t in trajectories for turn in t.turns]
    return _step(work, samples, np.repeat(advantage, [len(t.turns) for t in trajectories]), "trajectory")


def _step(work: Work, trajectories: Sequence[Trajectory], advantage: Floats, share: str) -> Step:
    config = work.config.model_copy(update={"share": share})
    rows, counts = batch(trajectories, advantage, range(len(trajectories)), config)
    _check(counts, work.row_tokens)
    trainer = Trainer(load(work.model, device="cpu"), config, choose(LOSS))

    def step() -> dict[str, float]:
        tally = Tally()
        trainer.update(rows, 0, tally)
        metrics = tally.metrics()
        return {"loss": metrics["loss/total"], "grad_norm": metrics["optim/grad_norm"], **_tokens(rows)}

    return step


def _tokens(rows: Sequence[Row]) -> dict[str, float]:
    """Tokens trained, tokens forwarded, and tokens whose hidden state is projected on the vocabulary."""
    return {
        "trained": sum(len(r.entries) for r in rows),
        "forwarded": sum(len(r) for r in rows),
        "projected": sum(len(np.unique(r.entries.source)) for r in rows),
    }


def _check(counts: Counter[str], row_tokens: int) -> None:
    if counts["tokens_trained"] != counts["tokens_eligible"]:
        dropped = {name: n for name, n in counts.items() if name.startswith("dropped/") and n}
        raise ConfigError(
            f"found rollouts of which not every token can be trained: {dropped}; expected none dropped: "
            f"if over_budget/right, set --row-tokens above {row_tokens}"
        )
