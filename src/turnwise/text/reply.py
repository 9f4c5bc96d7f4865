"""Replies to the tokens a model would sample for them, end mark included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from renderers.base import Renderer

from turnwise.errors import RenderError
from turnwise.text.content import Said


def reply_ids(renderer: Renderer, text: str) -> tuple[int, ...]:
    """The tokens of a reply that is this text (for `sampling.choices`).

    Templates that open every reply with an empty think block count it in: that is what the model samples there.
    """
    return said_ids(renderer, [{"role": "user", "content": "?"}], {"role": "assistant", "content": text})


def said_ids(
    renderer: Renderer, before: Sequence[Said], message: Said, tools: Sequence[Said] | None = None
) -> tuple[int, ...]:
    """The tokens between the generation prompt behind `before` and the next message, up to the end mark."""
    asked: Any = list(before)
    listed: Any = tools
    prompt = renderer.render_ids(asked, tools=listed, add_generation_prompt=True)
    ids = _drawn(renderer, [*asked, message], listed)
    stops = set(renderer.get_stop_token_ids())
    ends = [n for n in range(len(prompt), len(ids)) if ids[n] in stops]
    if ids[: len(prompt)] != prompt or not ends:
        raise RenderError(
            f"the reply {str(message.get('content'))[:80]!r} cannot be sampled as the renderer writes it: its first "
            "token runs into the generation prompt, or no end mark follows. Expected a reply that begins with a letter "
            "or a sign"
        )
    return tuple(ids[len(prompt) : ends[-1] + 1])


def _drawn(renderer: Renderer, messages: list[Any], tools: Any) -> list[int]:
    """The whole conversation; what the family's format has no form for is a RenderError."""
    try:
        return renderer.render_ids(messages, tools=tools)
    except (ValueError, TypeError) as error:
        raise RenderError(f"{type(renderer).__name__} cannot write this conversation: {error}") from error
