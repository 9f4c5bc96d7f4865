"""A notice told to the policy in the middle of its reply, as tokens."""

from __future__ import annotations

from typing import Any

from renderers import Renderer

from turnwise.errors import ConfigError
from turnwise.text.reply import reply_ids


def notice_ids(renderer: Renderer, text: str) -> list[int]:
    """The reply's end, a user's message, and the beginning of another reply: what the renderer would bridge with."""
    talk: Any = [{"role": "user", "content": "."}]
    told: Any = [{"role": "user", "content": text}]
    prompt = list(renderer.render(talk, add_generation_prompt=True).token_ids)
    said = list(reply_ids(renderer, "."))
    bridged = renderer.bridge_to_next_turn(prompt, said, told)
    if bridged is None:
        raise ConfigError(
            f"found rollout.compaction.notice with {type(renderer).__name__}, which cannot add a message to tokens "
            "that stand; expected a renderer that bridges, or no notice"
        )
    return [said[-1], *bridged.token_ids[len(prompt) + len(said) :]]
