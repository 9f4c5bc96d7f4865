"""A supervised config to the parts its run is made of, fresh or from a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from renderers import Renderer

from turnwise.config.loss import SftConfig
from turnwise.config.sft import SftRunConfig
from turnwise.envs import TaskSet
from turnwise.errors import DataError
from turnwise.losses.sft import sft
from turnwise.model import Policy, load, tiny
from turnwise.model.again import compute_again
from turnwise.sft.lines import source
from turnwise.sft.turns import trajectory
from turnwise.text import choose
from turnwise.text.content import text_of
from turnwise.train import Trainer
from turnwise.train.state import keep, take
from turnwise.types import Task, Trajectory


@dataclass(slots=True)
class Parts:
    """Everything a supervised run moves. Conversations become turns once, when they are first asked for."""

    config: SftRunConfig
    tasks: TaskSet
    policy: Policy
    renderer: Renderer
    trainer: Trainer
    made: dict[str, Trajectory] = field(default_factory=dict)

    def conversation(self, task: Task) -> Trajectory:
        """A conversation in turns."""
        if task.key not in self.made:
            self.made[task.key] = trajectory(task, self.renderer, self.policy.context)
        return self.made[task.key]

    def save(self, folder: Path, extra: dict[str, float]) -> None:
        """Write weights, tokenizer and optimizer; `restore` on an equal config continues exactly."""
        keep(self.trainer, folder, extra)

    def restore(self, folder: Path) -> dict[str, float]:
        """Take the trainer's state up; returns `extra`."""
        return take(self.trainer, folder)


def assemble(config: SftRunConfig, weights: Path | None = None) -> Parts:
    """Make the parts; `weights` is a checkpoint to load instead of the config's model."""
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    tasks = TaskSet(source(config.data), config.holdout_fraction, config.holdout_seed)
    tasks.holdout(config.eval.conversations)  # a split that leaves none is told before anything is loaded
    policy = load(str(weights), config.dtype, config.device) if weights else _policy(config, tasks)
    if config.train.checkpoint_activations:
        compute_again(policy)
    renderer = choose(policy.tokenizer, config.renderer, config.model)
    trainer = Trainer(policy, config.train, partial(sft, config=SftConfig()))
    parts = Parts(config, tasks, policy, renderer, trainer)
    if not parts.conversation(next(tasks.train(seed=config.seed))).turns:
        raise DataError(
            f"found a first conversation without a reply inside the model's {policy.context} tokens; expected shorter "
            "ones, or a model with a longer context"
        )
    return parts


def _policy(config: SftRunConfig, tasks: TaskSet) -> Policy:
    if config.model != "tiny":
        return load(config.model, config.dtype, config.device)
    texts = [text_of(message) for task in tasks.environment.tasks() for message in task.data["messages"]]
    return tiny.build(texts, config.tiny, config.seed, config.device, config.dtype)
