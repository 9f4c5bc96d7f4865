"""A file of rollouts to an optimizer step by TRL's GRPOTrainer: its loss, backward and AdamW; nothing is generated.

Each trajectory is one sequence, prompt and all that followed, its sampled tokens marked by `tool_mask`: what TRL does
with many turns at its best. Loss type dapo divides by the tokens of the whole batch, as ours does. Sequences are
sorted by length, so that little is padding. Gradient checkpointing is off, as in our trainer.
Shapes: B sequences of a micro-batch, P prompt, C completion.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnwise.bench.measure import Step
from turnwise.bench.steps import LOSS, Work
from turnwise.errors import DataError
from turnwise.model import load
from turnwise.types import Floats, Trajectory

Inputs = dict[str, Tensor]
"""What GRPOTrainer.compute_loss reads."""


@dataclass(frozen=True, slots=True)
class Sequenced:
    """One trajectory as TRL takes it: `prompt` [P], `completion` [C], and of each token of the completion whether it
    was sampled and with which log-probability."""

    prompt: np.ndarray
    completion: np.ndarray
    sampled: np.ndarray
    logp: np.ndarray
    advantage: float

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


def trl(work: Work) -> Step:
    """TRL's step over the same rollouts."""
    trajectories, advantage = work.read()
    batches = micro_batches(sequences(trajectories, advantage), work.row_tokens)
    trainer = _trainer(work)
    optimizer = trainer.create_optimizer()

    def step() -> dict[str, float]:
        optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for inputs in batches:
            part = trainer.compute_loss(trainer.model, inputs)
            part.backward()
            loss += float(part.detach())
        norm = torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), work.config.max_grad_norm)
        optimizer.step()
        return {"loss": loss, "grad_norm": float(norm), **_tokens(batches)}

    return step


def _tokens(batches: Sequence[Inputs]) -> dict[str, float]:
    """Forwarded counts padding, which is computed like any token; on a CPU TRL projects every position but the last."""
    shapes = [(b["prompt_ids"].shape[1] + b["completion_ids"].shape[1], len(b["prompt_ids"])) for b in batches]
    return {
        "trained": sum(int(b["tool_mask"].sum()) for b in batches),
        "forwarded": sum(length * size for length, size in shapes),
        "projected": sum((length - 1) * size for length, size in shapes),
    }


def sequences(trajectories: Sequence[Trajectory], advantage: Floats) -> list[Sequenced]:
    """Turns (reads 1 2, writes 3) and (reads 1 2 3 4, writes 5): prompt 1 2, completion 3 4 5, sampled 1 0 1."""
    return [_sequence(t, float(a)) for t, a in zip(trajectories, advantage, strict=True)]


def _sequence(trajectory: Trajectory, advantage: float) -> Sequenced:
    last = trajectory.turns[-1]
    ids = np.concatenate([last.prompt_ids, last.completion_ids])
    sampled, logp = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.float32)
    for turn in trajectory.turns:
        start, end = len(turn.prompt_ids), len(turn.prompt_ids) + len(turn.completion_ids)
        if not np.array_equal(ids[:end], np.concatenate([turn.prompt_ids, turn.completion_ids])):
            raise DataError("found a turn that does not continue the one before; expected one sequence a trajectory")
        sampled[start:end], logp[start:end] = 1, turn.logprobs
    first = len(trajectory.turns[0].prompt_ids)
    return Sequenced(ids[:first], ids[first:], sampled[first:], logp[first:], advantage)


def micro_batches(found: Sequence[Sequenced], budget: int) -> list[Inputs]:
    """Longest first, as many together as the budget holds with their padding."""
    total = torch.tensor(float(sum(int(s.sampled.sum()) for s in found)))
    parts: list[list[Sequenced]] = []
    for one in sorted(found, key=len, reverse=True):
        if parts and _size([*parts[-1], one]) <= budget:
            parts[-1].append(one)
        else:
            parts.append([one])
    return [_inputs(part, total) for part in parts]


def _size(part: Sequence[Sequenced]) -> int:
    return len(part) * (max(len(s.prompt) for s in part) + max(len(s.completion) for s in part))


def _inputs(part: Sequence[Sequenced], total: Tensor) -> Inputs:
    """Prompts end and completions begin in the same column."""
    return {
        "prompt_ids": _padded([s.prompt for s in part], left=True).long(),
        "prompt_mask": _padded([np.ones_like(s.prompt) for s in part], left=True).long(),
        "completion_ids": _padded([s.completion for s in part]).long(),
        "completion_mask": _padded([np.ones_like(s.completion) for s in part]).long(),
        "tool_mask": _padded([s.sampled for s in part]),
        "old_per_token_logps": _padded([s.logp for s in part]),
        "advantages": torch.tensor([s.advantage for s in part]),
        "num_items_in_batch": total,
    }


def _padded(rows: Sequence[np.ndarray], left: bool = False) -> Tensor:
    """Zeros to the longest, behind or in front: [1, 2], [3] is [[1, 2], [3, 0]], with `left` [[1, 2], [0, 3]]."""
    width = max(len(row) for row in rows)
    pads = [(width - len(row), 0) if left else (0, width - len(row)) for row in rows]
    return torch.from_numpy(np.stack([np.pad(row, pad) for row, pad in zip(rows, pads, strict=True)]))


def _trainer(work: Work) -> Any:
    """A GRPOTrainer that was given everything it asks for and will generate nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that TRL and transformers will change
        datasets, peer = import_module("datasets"), import_module("trl")
        policy = load(work.model, device="cpu")
        policy.model.set_attn_implementation("sdpa")
        trainer = peer.GRPOTrainer(
            model=policy.model,
            reward_funcs=_reward,
            args=peer.GRPOConfig(output_dir=str(work.rollouts.parent / "trl"), **_settings(work)),
            train_dataset=datasets.Dataset.from_dict({"prompt": ["-"]}),
            processing_class=policy.tokenizer,
        )
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation
    trainer.model.train()
    return trainer


def _settings(work: Work) -> dict[str, Any]:
    """Our trainer's settings in TRL's words."""
    config = work.config
    return {
        "loss_type": "dapo",
        "beta": 0.0,
        "epsilon": LOSS.low,
        "epsilon_high": LOSS.high,
        "temperature": 1.0,
        "learning_rate": config.lr,
        "adam_beta1": config.betas[0],
        "adam_beta2": config.betas[1],
        "weight_decay": config.weight_decay,
        "num_generations": 2,
        "per_device_train_batch_size": 2,
        "gradient_checkpointing": False,
        "bf16": False,
        "use_cpu": True,
        "report_to": "none",
    }


def _reward(completions: Sequence[Any], **_: Any) -> list[float]:
    """TRL wants one; nothing is generated, so nothing is rewarded."""
    return [0.0] * len(completions)
