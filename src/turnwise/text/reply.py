"""Reply texts to the tokens a model would sample for them, end mark included (for `sampling.choices`)."""

from __future__ import annotations

from typing import Any

from renderers.base import Renderer

from turnwise.errors import RenderError


def reply_ids(renderer: Renderer, text: str) -> tuple[int, ...]:
    """The tokens between the generation prompt and the next message, up to the end mark.

    Templates that open every reply with an empty think block count it in: that is what the model samples there.
    """
    ask: Any = [{"role": "user", "content": "?"}]
    said: Any = [*ask, {"role": "assistant", "content": text}]
    prompt = renderer.render_ids(ask, add_generation_prompt=True)
    ids = renderer.render_ids(said)
    stops = set(renderer.get_stop_token_ids())
    ends = [n for n in range(len(prompt), len(ids)) if ids[n] in stops]
    if ids[: len(prompt)] != prompt or not ends:
        raise RenderError(
            f"the reply {text!r} cannot be sampled as the renderer writes it: its first token runs into the generation "
            "prompt, or no end mark follows. Expected a reply that begins with a letter or a sign"
        )
    return tuple(ids[len(prompt) : ends[-1] + 1])
