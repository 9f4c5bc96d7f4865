"""Weights, tokenizer and optimizer to a checkpoint's folder and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from turnwise.train.step import Trainer

STATE = "trainer.pt"


def keep(trainer: Trainer, folder: Path, extra: Mapping[str, float]) -> None:
    """Write everything that continues the run; `extra` comes back from `take`."""
    trainer.policy.save(folder)
    torch.save({**trainer.state(), "extra": dict(extra)}, folder / STATE)


def take(trainer: Trainer, folder: Path) -> dict[str, float]:
    """Take the trainer's state up; the weights were loaded when the parts were made. Returns `extra`."""
    state: dict[str, Any] = torch.load(folder / STATE, weights_only=True, map_location=trainer.policy.device)
    trainer.restore(state)
    return dict(state["extra"])
