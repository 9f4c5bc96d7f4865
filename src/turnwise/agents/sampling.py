"""What a config says about replies, in tokens."""

from __future__ import annotations

from renderers import Renderer

from turnwise.config.run import SamplingConfig
from turnwise.errors import ConfigError
from turnwise.text import reply_ids
from turnwise.types import Sampling


def sampling(config: SamplingConfig, renderer: Renderer) -> Sampling:
    """Stop tokens come from the renderer; `choices` become the tokens a model would sample for them."""
    choices = tuple(reply_ids(renderer, text) for text in config.choices)
    longest = max(map(len, choices), default=0)
    if longest > config.max_tokens:
        raise ConfigError(
            f"found sampling.max_tokens {config.max_tokens}; expected at least {longest}, the tokens of the longest of "
            "sampling.choices with its end of turn"
        )
    return Sampling(
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        top_p=config.top_p,
        top_k=config.top_k,
        min_p=config.min_p,
        stop_ids=tuple(renderer.get_stop_token_ids()),
        choices=choices,
    )
