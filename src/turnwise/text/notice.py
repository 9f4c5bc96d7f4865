"""What is told between two parts of one reply, in tokens."""

from __future__ import annotations

from typing import Any

from renderers.base import Renderer

from turnwise.errors import RenderError


def notice(renderer: Renderer, text: str) -> list[int]:
    """The end of a reply that is cut short, a user's message, and the beginning of another reply."""
    asked: Any = [{"role": "user", "content": "?"}]
    said: Any = [{"role": "user", "content": text}]
    prompt = renderer.render_ids(asked, add_generation_prompt=True)
    cut = prompt[-1:]  # any token that does not end a reply
    bridged = renderer.bridge_to_next_turn(prompt, cut, said)
    if bridged is None:
        raise RenderError(
            "found a template that cannot go on behind a reply; expected one that only appends: leave budget messages "
            "out, or name another renderer"
        )
    return [int(i) for i in bridged.token_ids[len(prompt) + len(cut) :]]
