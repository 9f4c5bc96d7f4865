"""A config to the parts a run is made of, fresh or from a checkpoint."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from renderers import Renderer

from turnwise.agents import Limits, Plan, Rules, plan, sampling
from turnwise.condense import Condensation, condensation
from turnwise.config import RunConfig
from turnwise.engine import LocalEngine
from turnwise.envs import TaskSet, find
from turnwise.envs.corpus import corpus
from turnwise.envs.find import Environment
from turnwise.envs.tools import tool_names
from turnwise.errors import ConfigError
from turnwise.imports import nearest
from turnwise.losses import choose as choose_loss
from turnwise.model import Policy, load, tiny
from turnwise.model.again import compute_again
from turnwise.model.slots import Gradient
from turnwise.runs import rollouts
from turnwise.text import choose
from turnwise.text.notice import notice_ids
from turnwise.train import Judges, Oracle, Trainer
from turnwise.train.state import keep, take
from turnwise.trees.echo import Rule
from turnwise.types import Sampling

CORPUS_EPISODES = 100


@dataclass(slots=True)
class Parts:
    """Everything the loop moves: made once, then only the weights and the trainer's state change."""

    config: RunConfig
    environment: Environment
    tasks: TaskSet
    policy: Policy
    renderer: Renderer
    engine: LocalEngine
    trainer: Trainer
    judges: Judges
    echo: Rule | None
    oracle: Oracle | None
    sampling: Sampling
    limits: Limits
    rules: Rules
    condense: Condensation | None
    compaction: Plan | None = None
    eval_compaction: Plan | None = None

    def save(self, folder: Path, extra: dict[str, float]) -> None:
        """Write weights, tokenizer, optimizer and loop state; `restore` on an equal config continues exactly."""
        keep(self.trainer, folder, extra)

    def restore(self, folder: Path) -> dict[str, float]:
        """Take the trainer's state up; the weights were loaded when the parts were made. Returns `extra`."""
        extra = take(self.trainer, folder)
        self.engine.update(self.trainer.version)
        return extra


def assemble(config: RunConfig, weights: Path | None = None) -> Parts:
    """Make the parts; `weights` is a checkpoint to load instead of the config's model."""
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    rollouts.free(config.env.save_columns)
    environment = find(config.env.id, config.env.args)
    tasks = TaskSet(environment, config.env.holdout_fraction, config.env.holdout_seed)
    echo = _echo(config, tasks)
    policy = _policy(config, tasks) if weights is None else load(str(weights), config.dtype, config.device)
    if config.train.checkpoint_activations:
        compute_again(policy)
    renderer = choose(policy.tokenizer, config.renderer, config.model)
    compaction = config.rollout.compaction
    if compaction is not None and compaction.notice is not None:
        notice_ids(renderer, "?")  # a template that cannot say it is refused before the run starts
    engine = LocalEngine(policy, write_notice=partial(notice_ids, renderer))
    return Parts(
        config=config,
        environment=environment,
        tasks=tasks,
        policy=policy,
        renderer=renderer,
        engine=engine,
        trainer=Trainer(policy, config.train, choose_loss(config.loss), config.loss, _gradient(config)),
        judges=_judges(config, policy, tasks),
        echo=echo,
        oracle=Oracle(config.oracle, policy, renderer, config.train.row_tokens) if config.oracle.coef else None,
        sampling=sampling(config.env.sampling, renderer),
        limits=Limits(config.env.max_turns, config.env.max_tokens, config.env.timeout_s),
        rules=Rules.of(config.env),
        condense=_condense(config, engine, renderer, tasks),
        compaction=plan(config.rollout.compaction),
        eval_compaction=plan(config.eval.compaction or config.rollout.compaction),
    )


def _condense(config: RunConfig, engine: LocalEngine, renderer: Renderer, tasks: TaskSet) -> Condensation | None:
    """Who condenses: the policy's own engine, or one over a copy or another model that is never trained."""
    wanted = config.rollout.condense
    if wanted is None:
        return None
    writer, theirs = wanted.model, renderer
    if wanted.type == "model" and writer.source in ("start", "load"):
        model = _policy(config, tasks) if writer.source == "start" else load(writer.name, config.dtype, config.device)
        engine = LocalEngine(_frozen(model))
        theirs = choose(model.tokenizer, config.renderer if writer.source == "start" else "auto", writer.name)
    return condensation(wanted, renderer, engine, theirs)


def _gradient(config: RunConfig) -> Gradient:
    """What flows through events."""
    return config.rollout.compaction.gradient if config.rollout.compaction else "map"


def _echo(config: RunConfig, tasks: TaskSet) -> Rule | None:
    """What echoes; a tool that no tool of the environment is called would silently select nothing."""
    if config.env.echo is None:
        return None
    wanted = (config.env.echo.tool and config.env.echo.tool.tool_names) or []
    names = asyncio.run(tool_names(tasks, config.seed)) if wanted else []
    for wrong in [name for name in wanted if name not in names]:
        there = f"its tools are {names}" if names else "it has no tools"
        raise ConfigError(
            f"found {wrong!r} in env.echo.tool.tool_names; expected tools of {config.env.id}: {there}"
            f"{nearest(wrong, names)}"
        )
    return Rule.of(config.env.echo)


def _policy(config: RunConfig, tasks: TaskSet) -> Policy:
    if config.model != "tiny":
        return load(config.model, config.dtype, config.device)
    talks = asyncio.run(corpus(tasks, CORPUS_EPISODES, config.seed, config.env.sampling.choices or [""]))
    texts = [str(message["content"]) for talk in talks for message in talk]
    return tiny.build([*texts, *config.env.sampling.choices], config.tiny, config.seed, config.device, config.dtype)


def _judges(config: RunConfig, policy: Policy, tasks: TaskSet) -> Judges:
    """Whom the loss's options ask; the reference is made anew, since a resumed run's weights have moved on."""
    loss = config.loss
    return Judges(
        start=policy if loss.tis_cap else None,
        reference=_frozen(_policy(config, tasks)) if loss.reference_kl else None,
        teacher=_teacher(loss.teacher, config, policy) if loss.type == "opd" else None,
    )


def _teacher(name: str, config: RunConfig, policy: Policy) -> Policy:
    """A teacher reads the policy's tokens, so its vocabulary has to be the same."""
    teacher = _frozen(load(name, config.dtype, config.device))
    own, others = policy.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    unlike = sorted(t for t in own.keys() | others.keys() if own.get(t) != others.get(t))
    if unlike or teacher.vocab < policy.vocab:
        raise ConfigError(
            f"found loss.teacher {name!r} with {teacher.vocab} tokens, of which {len(unlike)} differ from the policy's "
            f"{policy.vocab} ({', '.join(map(repr, unlike[:3]))}); expected a teacher with the policy's vocabulary"
        )
    return teacher


def _frozen(policy: Policy) -> Policy:
    """Never trained."""
    policy.model.requires_grad_(False)
    return policy
