"""What a config says about replies, in tokens."""

from __future__ import annotations

from renderers import Renderer

from turnwise.config.run import SamplingConfig
from turnwise.text import reply_ids
from turnwise.types import Sampling


def sampling(config: SamplingConfig, renderer: Renderer) -> Sampling:
    """Stop tokens come from the renderer; `choices` become the tokens a model would sample for them."""
    return Sampling(
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        top_p=config.top_p,
        top_k=config.top_k,
        min_p=config.min_p,
        stop_ids=tuple(renderer.get_stop_token_ids()),
        choices=tuple(reply_ids(renderer, text) for text in config.choices),
    )
