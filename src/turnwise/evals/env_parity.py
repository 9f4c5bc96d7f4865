"""Is an environment played and trained exactly? Its real episodes, sampled as a run samples them, are replayed in the
trainer, each alone and a group as one tree; and every turn's prompt is compared with what stood before it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from renderers import Renderer

from turnwise.agents import Batch, Limits, Rules, plan, rollout, sampling
from turnwise.condense import condensation
from turnwise.config.doctor_env import EnvDoctorConfig
from turnwise.engine import LocalEngine
from turnwise.envs import TaskSet, find
from turnwise.envs.corpus import corpus
from turnwise.errors import ConfigError, RunError
from turnwise.evals.scripted import replies
from turnwise.imports import nearest
from turnwise.model import Policy, load, tiny
from turnwise.rows import pack
from turnwise.runs.breaks import MENDS
from turnwise.text import choose
from turnwise.text.families import FAMILIES, MARKS
from turnwise.text.table import steady
from turnwise.train.step import score_row
from turnwise.trees import merge
from turnwise.types import BreakKind, Sampling, Tool, Trajectory

Case = dict[str, float | str]
CORPUS_EPISODES = 20


def examine(config: EnvDoctorConfig) -> list[Case]:
    """One line of figures for each renderer and way of replying."""
    environment = find(config.env.id, config.env.args)
    tasks = TaskSet(environment, config.env.holdout_fraction, config.env.holdout_seed)
    tools = asyncio.run(_tools(tasks, config.seed))
    found: list[Case] = []
    for name, policy, renderer in _players(config, tasks):
        ways = _ways(config, renderer, tools)
        for way, how in ways.items():
            played = asyncio.run(_play(config, tasks, policy, renderer, how))
            found.append({"name": f"{name}, {way}", **figures(policy, renderer, played)})
    return found


def _players(config: EnvDoctorConfig, tasks: TaskSet) -> Iterator[tuple[str, Policy, Renderer]]:
    """The model as it is, or a tiny one for each family."""
    for wrong in [name for name in config.families if name not in FAMILIES]:
        raise ConfigError(f"found family {wrong!r}; expected some of {[*FAMILIES]}{nearest(wrong, FAMILIES)}")
    if config.model != "tiny":
        policy = load(config.model, config.dtype, config.device)
        renderer = choose(policy.tokenizer, config.renderer, config.model)
        yield type(renderer).__name__, policy, renderer
        return
    talks = asyncio.run(corpus(tasks, CORPUS_EPISODES, config.seed, config.env.sampling.choices or [""], 8))
    texts = [str(message.get("content")) for talk in talks for message in talk]
    for name in config.families or FAMILIES:
        policy = tiny.build(texts, config.tiny, config.seed, config.device, config.dtype, MARKS)
        yield name, policy, FAMILIES[name].make(policy.tokenizer)


async def _tools(tasks: TaskSet, seed: int) -> list[Tool]:
    """What the first training task offers."""
    env = tasks.environment.new()
    try:
        return (await env.start(next(tasks.train(seed=seed)))).tools or []
    finally:
        await env.close()


def _ways(config: EnvDoctorConfig, renderer: Renderer, tools: Sequence[Tool]) -> dict[str, Sampling]:
    """Free replies, or those the config allows; and replies of every form, which a random model would never write."""
    chosen = config.env.sampling.choices
    given = sampling(config.env.sampling, renderer)
    forms = replies(renderer, chosen or ["ok"], tools)
    longest = max(map(len, forms))
    free = given if chosen else replace(given, max_tokens=min(given.max_tokens, config.max_tokens))
    scripted = replace(given, choices=forms, top_p=1.0, top_k=0, min_p=0.0, max_tokens=longest)
    return {"choices" if chosen else "free": free, "every form": scripted}


async def _play(
    config: EnvDoctorConfig, tasks: TaskSet, policy: Policy, renderer: Renderer, how: Sampling
) -> list[Trajectory]:
    """Real episodes; one that failed is an error here, since there is nothing to replay. Where a model condenses, it is
    the one that is examined."""
    limits = Limits(config.env.max_turns, config.env.max_tokens, config.env.timeout_s)
    batch = Batch([*islice(tasks.train(seed=config.seed), config.tasks)], config.env.group, config.seed, 0)
    engine, wanted = LocalEngine(policy), config.rollout.condense
    played = await rollout(
        batch,
        tasks.environment,
        engine,
        renderer,
        how,
        limits,
        compaction=plan(config.rollout.compaction),
        rules=Rules.of(config.env),
        condense=condensation(wanted, renderer, engine, renderer) if wanted else None,
    )
    errors = [t.error for t in played if t.error is not None]
    if errors:
        raise RunError(f"{len(errors)} of {len(played)} episodes failed in {config.env.id}; the first: {errors[0]}")
    return played


def figures(policy: Policy, renderer: Renderer, played: Sequence[Trajectory]) -> Case:
    """Differences of the replay, and how turns continued what stood before them."""
    there = [t for t in played if t.turns]
    if not there:
        raise RunError("found no turn in any episode; expected some: the prompts may be longer than env.max_tokens")
    found = np.concatenate([*(_differences(policy, [t]) for t in there), *_groups(policy, there)])
    kinds = Counter(turn.prefix.kind for t in there for turn in t.turns if turn.prefix is not None)
    broken = {kind: kinds[kind] for kind in BreakKind if kinds[kind] and kind is not BreakKind.CLEAN}
    return {
        "max_abs_diff": float(found.max()),
        "tokens": float(sum(t.sampled_tokens for t in there)),
        "turns": float(sum(len(t.turns) for t in there)),
        "clean": float(kinds[BreakKind.CLEAN]),
        "breaks": ", ".join(f"{kind.value} {n}" for kind, n in broken.items()) or "none",
        "unmeant": float(sum(kinds[kind] for kind in MENDS)),
        "append-only": "yes" if steady(renderer) else "no",
    }


def _groups(policy: Policy, played: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
    groups = {t.group: [other for other in played if other.group == t.group] for t in played}
    return [_differences(policy, members) for members in groups.values()]


@torch.inference_mode()
def _differences(policy: Policy, members: Sequence[Trajectory]) -> NDArray[np.float64]:
    """|trainer - sampler| of every sampled token, the trajectories merged into one tree."""
    trees = merge(members)
    rows, cut = pack(trees, sum(len(tree) for tree in trees))
    assert not cut.total()
    pairs = [(score_row(policy, row).logp_E.double().cpu().numpy(), row.entries.sampler_logp) for row in rows]
    found: NDArray[np.float64] = np.concatenate([np.abs(trainer - sampler) for trainer, sampler in pairs])
    return found
