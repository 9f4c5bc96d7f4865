"""What `turnwise chat` may be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.config.run import Positive
from turnwise.config.section import Section


class ChatConfig(Section):
    """Whom to talk to, and how replies are drawn."""

    name: str = ""
    """Name of the model at a server; empty takes the first it lists."""
    renderer: str = "auto"
    """How messages become tokens; auto goes by the model's name and chat template."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights."""
    device: str = "auto"
    """auto takes CUDA where there is one, else the CPU."""
    system: str = ""
    """System prompt; empty is none."""
    temperature: Annotated[float, Field(ge=0.0)] = 0.7
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95
    """Draw from the fewest likeliest tokens that hold this probability."""
    max_tokens: Positive = 512
    """Longest reply."""
    seed: int = 0
    """Seed of the replies."""
