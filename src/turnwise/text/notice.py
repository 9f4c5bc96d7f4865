"""A notice told to the policy in the middle of its reply, as tokens."""

from __future__ import annotations

from typing import Any

from renderers.base import Renderer

from turnwise.errors import RenderError
from turnwise.text.reply import reply_ids


def notice_ids(renderer: Renderer, text: str) -> list[int]:
    """The reply's end, a user's message, and the beginning of another reply: what the renderer would bridge with."""
    talk: Any = [{"role": "user", "content": "."}]
    told: Any = [{"role": "user", "content": text}]
    prompt = list(renderer.render(talk, add_generation_prompt=True).token_ids)
    said = list(reply_ids(renderer, "."))
    bridged = renderer.bridge_to_next_turn(prompt, said, told)
    if bridged is None:
        raise RenderError(
            f"found {type(renderer).__name__}, whose template cannot go on behind a reply; expected one that only "
            "appends: leave notices and budget messages out, or name another renderer"
        )
    return [said[-1], *(int(i) for i in bridged.token_ids[len(prompt) + len(said) :])]
