"""A file of rollouts to the optimizer step that `turnwise bench train` and `bench step` time.

As packed trees, one sample a turn, or cut at every break: all our own trainer on the same tokens; only what is merged
differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from turnwise.bench.histories import by_break, by_turn
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
    return _step(work, *_rewarded(by_turn(work.read()[0])), "trajectory")


def breaks(work: Work) -> Step:
    """A new sample wherever a prompt does not begin with all that stands: what was common before is forwarded again."""
    return _step(work, *_rewarded(by_break(work.read()[0])), "trajectory")


def gradients(work: Work) -> Step:
    """How far apart the gradients of trees and of samples cut at every break are, as a part of their length."""
    trajectories, advantage = work.read()
    trainer = Trainer(load(work.model, device="cpu"), work.config, choose(LOSS))
    cut = _rewarded(by_break(trajectories))

    def step() -> dict[str, float]:
        trainer.accumulate(_rows(work, trajectories, advantage, "group"), Tally())
        weights = [w for w in trainer.policy.model.parameters() if w.grad is not None]
        first = [w.grad.clone() for w in weights if w.grad is not None]
        trainer.accumulate(_rows(work, *cut, "trajectory"), Tally())
        apart = sum(float((w.grad - g).double().square().sum()) for w, g in zip(weights, first, strict=True))
        return {"grad_rel_diff": (apart / sum(float(g.double().square().sum()) for g in first)) ** 0.5}

    return step


def _rewarded(samples: list[Trajectory]) -> tuple[list[Trajectory], Floats]:
    """Samples with the advantage of the trajectories they were cut from."""
    return samples, advantages(samples, AdvantageConfig(type="none"))


def _rows(work: Work, trajectories: Sequence[Trajectory], advantage: Floats, share: str) -> list[Row]:
    config = work.config.model_copy(update={"share": share})
    rows, counts = batch(trajectories, advantage, range(len(trajectories)), config)
    _check(counts, work.row_tokens)
    return rows


def _step(work: Work, trajectories: Sequence[Trajectory], advantage: Floats, share: str) -> Step:
    rows = _rows(work, trajectories, advantage, share)
    trainer = Trainer(load(work.model, device="cpu"), work.config, choose(LOSS))

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
