"""Qwen3's renderer, in which only a reply that begins with an opening think tag has reasoning.

The package's takes everything before a closing tag in the history for reasoning and drops it; what the model wrote
without an opening tag is text, and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from renderers.base import RenderedTokens
from renderers.qwen3 import Qwen3Renderer

from turnwise.text.content import Said, text_of
from turnwise.text.parse import THOUGHT, reason
from turnwise.types import Message


class Qwen3(Qwen3Renderer):
    """The package's, told of every reply what its reasoning is."""

    def render(
        self, messages: Sequence[Said], *, tools: Sequence[Said] | None = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """Messages to attributed tokens."""
        told: Any = [split(m) if m.get("role") == "assistant" else m for m in messages]
        listed: Any = tools
        return super().render(told, tools=listed, add_generation_prompt=add_generation_prompt)


def split(message: Said) -> Message:
    """A reply with its reasoning apart, "" where it has none.

    "<think>why</think>go</think>!" is reasoning "why" and text "go</think>!"; "go</think>!" is text.
    """
    if isinstance(message.get("reasoning_content"), str):
        return {**message}
    text = text_of(message)
    reasoning, start, closed = reason(text)
    if reasoning is None or not closed or THOUGHT not in text[:start]:
        return {**message, "reasoning_content": ""}
    return {**message, "reasoning_content": reasoning, "content": text[start:]}
