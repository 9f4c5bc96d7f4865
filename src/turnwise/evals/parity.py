"""Is a model exact? Sample conversations in the engine, replay them in the trainer, compare log-probabilities.

Each case differs in what is sampled (one turn, many, forks; with the whole cache or a compacted one) and how it is
replayed (alone, packed, as one tree).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.agents.compaction import fresh
from turnwise.config.doctor import DoctorConfig
from turnwise.engine import LocalEngine
from turnwise.errors import ModelError
from turnwise.model import Policy
from turnwise.rows import Row, pack
from turnwise.train.step import score_row
from turnwise.trees import merge
from turnwise.types import Budget, Compaction, Sampling, Session, Settings, Task, Trajectory, Turn
from turnwise.types import Turns as TurnRule

SAID = (
    "You see a red ball 2 steps forward and 1 step left, and a wall 3 steps to the right. What do you do?",
    "That did not help: the door is still closed, and the key lies behind you.",
    "The tool answered: 17 apples, 4 pears, no error. Continue.",
    "Write the next number of the series 2, 3, 5, 8, 13.",
)
"""What an environment might say; every turn reads one of these."""

SMALL = Settings(recent=4)
"""Settings for regions of a few dozen tokens."""

Differences = NDArray[np.float64]


Memory = Callable[[Policy, DoctorConfig, int], Compaction]
"""How the cache of the conversation of some number is compacted."""


def examine(policy: Policy, config: DoctorConfig) -> list[dict[str, float | str]]:
    """One line of figures a case: name, max_abs_diff, mean_abs_diff, tokens, events."""
    return [{"name": name, **_figures(policy, case(policy, config))} for name, case in CASES.items()]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was sampled, and the rows that hold it."""

    talks: Sequence[Trajectory]
    rows: Sequence[Row]


Case = Callable[[Policy, DoctorConfig], Sampled]


def _figures(policy: Policy, sampled: Sampled) -> dict[str, float]:
    differences = _compare(policy, sampled.rows)
    return {
        "max_abs_diff": float(differences.max()),
        "mean_abs_diff": float(differences.mean()),
        "tokens": float(len(differences)),
        "events": float(sum(len(list(fresh(talk.turns))) for talk in sampled.talks)),
    }


def _plain(policy: Policy, config: DoctorConfig) -> Sampled:
    """One turn each, sampled together, replayed alone."""
    return _alone(_talks(policy, config.model_copy(update={"turns": 1})))


def _turns(policy: Policy, config: DoctorConfig) -> Sampled:
    """Many turns each, replayed alone: the cache must have held exactly what was said."""
    return _alone(_talks(policy, config))


def _packed(policy: Policy, config: DoctorConfig, memory: Memory | None = None) -> Sampled:
    """Many turns each, replayed side by side in one row."""
    talks = _talks(policy, config, memory)
    return Sampled(talks, _rows([[talk] for talk in talks]))


def _fork(policy: Policy, config: DoctorConfig, memory: Memory | None = None) -> Sampled:
    """Siblings that continue one conversation, some from a history whose tail was re-tokenised, replayed as a tree."""
    talks = asyncio.run(_siblings(policy, config, memory))
    return Sampled(talks, _rows([talks]))


def _compacted(memory: Memory) -> Case:
    """Many turns each with a cache that is compacted on the way, replayed alone."""
    return lambda policy, config: _alone(_talks(policy, config, memory))


def _budget(policy: Policy, config: DoctorConfig, number: int, settings: Settings = SMALL) -> Compaction:
    """One to four events: a little more than the longest first prompt fits, and some 40 columns go at a time."""
    longest = max(len(_first(policy, n)) for n in range(config.sessions))
    return Compaction(Budget(longest + config.max_tokens, 40, 8, 1 + number % 4), settings, protect=4)


def _per_turn(policy: Policy, config: DoctorConfig, number: int) -> Compaction:  # noqa: ARG001 - the shape of a memory
    return Compaction(TurnRule(number % 2), SMALL, protect=4)


def _with(**how: Any) -> Memory:
    settings = replace(SMALL, **how)
    return lambda policy, config, number: _budget(policy, config, number, settings)


CASES: dict[str, Case] = {
    "plain": _plain,
    "turns": _turns,
    "packed": _packed,
    "fork": _fork,
    "budget": _compacted(_budget),
    "budget_packed": partial(_packed, memory=_budget),
    "budget_fork": partial(_fork, memory=_budget),
    "per_turn": _compacted(_per_turn),
    "evict": _compacted(_with(method="evict")),
    "delete": _compacted(_with(method="delete", carry_ratio=0.1)),
    "delete_reread": _compacted(_with(method="delete_reread", carry_head=2, carry_tail=6)),
    "delete_fork": partial(_fork, memory=_with(method="delete")),
}


def _alone(talks: Sequence[Trajectory]) -> Sampled:
    return Sampled(talks, [row for talk in talks for row in _rows([[talk]])])


def _rows(trees: Sequence[Sequence[Trajectory]]) -> list[Row]:
    """All trees in one row, however long."""
    merged = [tree for members in trees for tree in merge(members)]
    rows, cut = pack(merged, sum(len(tree) for tree in merged))
    assert not cut.total()
    return rows


@torch.inference_mode()
def _compare(policy: Policy, rows: Sequence[Row]) -> Differences:
    """|trainer - sampler| of every sampled token."""
    pairs = [(score_row(policy, row).logp_E.double().cpu().numpy(), row.entries.sampler_logp) for row in rows]
    found = np.concatenate([np.abs(trainer - sampler) for trainer, sampler in pairs])
    if not np.isfinite(found).all():
        raise ModelError(f"found {int((~np.isfinite(found)).sum())} log-probabilities that are not finite numbers")
    return found


def _talks(policy: Policy, config: DoctorConfig, memory: Memory | None = None) -> list[Trajectory]:
    async def together() -> list[Trajectory]:
        engine = LocalEngine(policy)
        return list(await asyncio.gather(*(_talk(engine, config, n, memory) for n in range(config.sessions))))

    return asyncio.run(together())


def _first(policy: Policy, number: int) -> list[int]:
    """What a conversation begins with."""
    said = _said(policy)
    return said[number % len(said)] * (1 + number % 3)


async def _talk(engine: LocalEngine, config: DoctorConfig, number: int, memory: Memory | None) -> Trajectory:
    """One conversation; they differ in length and in sampling, so that the batch is ragged."""
    said, sampling = _said(engine.policy), _sampling(config, number)
    trajectory = Trajectory("doctor", Task(f"{number}"), number, 0, config.seed)
    compaction = None if memory is None else memory(engine.policy, config, number)
    first = _first(engine.policy, number)
    session = await engine.open(first, sampling, seed=config.seed + number, compaction=compaction)
    for turn in range(config.turns):
        new = said[(number + turn) % len(said)] if turn else []
        trajectory.turns.append(await _step(engine, session, new, sampling))
    await engine.close(session)
    return trajectory


async def _siblings(policy: Policy, config: DoctorConfig, memory: Memory | None) -> list[Trajectory]:
    """Two turns in common; then each sibling goes on from a fork, every second one from a changed history."""
    engine, said = LocalEngine(policy), _said(policy)
    sampling = _sampling(config, 0)
    compaction = None if memory is None else memory(policy, config, 3)
    root = await engine.open(said[0], sampling, seed=config.seed, compaction=compaction)
    shared = [await _step(engine, root, new, sampling) for new in ([], said[1])]
    found = []
    for number in range(config.sessions):
        session: Session = await engine.fork(root, seed=config.seed + 100 + number)
        if number % 2:
            drifted = [*root.ids[:-2], *said[3][:2]]
            await engine.close(session)
            session = await engine.open(drifted, sampling, seed=config.seed + 100 + number, compaction=compaction)
        turns = [await _step(engine, session, said[(number + t) % len(said)], sampling) for t in range(config.turns)]
        await engine.close(session)
        found.append(Trajectory("doctor", Task(f"{number}"), 0, number, config.seed, turns=[*shared, *turns]))
    return found


async def _step(engine: LocalEngine, session: Session, new: Sequence[int], sampling: Sampling) -> Turn:
    prompt = [*session.ids, *new]
    return Turn.of(np.array(prompt, np.int32), await engine.step(session, new), sampling.temperature)


def _said(policy: Policy) -> list[list[int]]:
    return [list(policy.tokenizer.encode(text, add_special_tokens=False)) for text in SAID]


def _sampling(config: DoctorConfig, number: int) -> Sampling:
    """Free, cooler, or restricted to a recorded support, in turn."""
    base = Sampling(max_tokens=config.max_tokens)
    return (base, replace(base, temperature=0.7), replace(base, top_p=0.9, top_k=40))[number % 3]
