"""A run small enough to be repeated, killed and compared: every step of it changes the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnwise.config import RunConfig
from turnwise.config.loss import SftConfig
from turnwise.config.run import (
    AdvantageConfig,
    CheckpointConfig,
    EnvConfig,
    EvalConfig,
    SamplingConfig,
    TinyConfig,
    TrainConfig,
)
from turnwise.reporter import Silent


def config(out: Path, seed: int = 1, steps: int = 3, every: int = 2, **more: Any) -> RunConfig:
    """2 tasks x 2 siblings of at most 3 turns; rewards are rare there, so each sampled token is learnt from."""
    fields: dict[str, Any] = {
        "tiny": TinyConfig(width=32),
        "env": EnvConfig(
            group=2,
            max_turns=3,
            args={"max_steps": 3},
            sampling=SamplingConfig(choices=["turn left", "turn right", "go forward"]),
        ),
        "advantage": AdvantageConfig(type="none"),
        "loss": SftConfig(),
        "train": TrainConfig(steps=steps, tasks=2, updates=2, warmup=2, lr=3e-3, threads=1),
        "eval": EvalConfig(tasks=4, every=2),
        "checkpoint": CheckpointConfig(every=every),
    }
    return RunConfig(name="run", out=str(out), seed=seed, **(fields | more))


class Cut(Exception):
    """The power is gone."""


class Power(Silent):
    """Fails at the `cut`-th thing it is told, as a machine may at any moment."""

    def __init__(self, cut: int) -> None:
        self.left = cut

    def progress(self, stage: str, done: int, total: int) -> None:
        self.tick()

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self.tick()

    def tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Cut


def lines(out: Path) -> list[dict[str, Any]]:
    """The metrics of each step as they stand on the disk."""
    return [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]


def numbers(out: Path) -> list[dict[str, Any]]:
    """The metrics of each step but for clocks."""
    clocks = ("time/", "perf/")
    return [{name: value for name, value in line.items() if not name.startswith(clocks)} for line in lines(out)]


def weights(out: Path, step: int) -> bytes:
    """The model that was saved at a step."""
    return (out / "run" / "checkpoints" / f"step-{step:06d}" / "model.safetensors").read_bytes()
