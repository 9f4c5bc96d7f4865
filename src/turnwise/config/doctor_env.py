"""What `turnwise doctor --env ID` may be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.config.compaction import RolloutConfig
from turnwise.config.run import EnvConfig, Positive, TinyConfig
from turnwise.config.section import Section


class PlayedConfig(EnvConfig):
    """The environment to play, and the limits of an episode."""

    group: Positive = 2
    """Sibling episodes of each task."""
    max_turns: Positive = 6
    """Turns an episode may take."""


class EnvDoctorConfig(Section):
    """The environment to play, the model to play it with, and how much of it."""

    model: str = "tiny"
    """`tiny` (random weights, its tokenizer made from the environment's text, once for each known template), `smollm2`,
    a folder such as a run's checkpoint, or a hub name."""
    renderer: str = "auto"
    """How messages become tokens, for every model but `tiny`."""
    families: list[str] = []
    """Templates that `tiny` is given, by their name in docs/templates.md; empty is all of them."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights."""
    device: str = "auto"
    """auto takes CUDA where there is one, else the CPU."""
    tasks: Positive = 3
    """Tasks to play."""
    max_tokens: Positive = 24
    """Longest free reply, in tokens."""
    seed: int = 0
    """Seed of weights, tasks and replies."""
    threshold: Annotated[float, Field(gt=0.0)] = 1e-4
    """Largest difference that passes."""
    tiny: TinyConfig = TinyConfig()
    env: PlayedConfig = PlayedConfig()
    rollout: RolloutConfig = RolloutConfig()
