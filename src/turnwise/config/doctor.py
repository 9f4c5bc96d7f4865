"""What `turnwise doctor` may be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.config.section import Section


class DoctorConfig(Section):
    """The model to examine, and how much of it."""

    model: str = "tiny"
    """`tiny` (random weights), `smollm2`, a folder such as a run's checkpoint, or a hub name."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights."""
    device: str = "auto"
    """auto takes CUDA where there is one, else the CPU."""
    sessions: Annotated[int, Field(ge=1)] = 6
    """Conversations of each case, sampled together."""
    turns: Annotated[int, Field(ge=2)] = 4
    """Turns of a conversation."""
    max_tokens: Annotated[int, Field(ge=1)] = 24
    """Longest reply, in tokens."""
    seed: int = 0
    """Seed of the replies."""
    threshold: Annotated[float, Field(gt=0.0)] = 1e-4
    """Largest difference that passes."""
