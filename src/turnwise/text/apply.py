"""A tokenizer's own chat template as a function from messages to text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from turnwise.errors import RenderError
from turnwise.text.content import Said, plain


def has_template(tokenizer: Any) -> bool:
    """Whether the tokenizer brings a chat template."""
    return bool(getattr(tokenizer, "chat_template", None)) and callable(getattr(tokenizer, "apply_chat_template", None))


def apply(
    tokenizer: Any, messages: Sequence[Said], tools: Sequence[Said] | None = None, add_generation_prompt: bool = False
) -> str:
    """The text that the template makes of the messages; what the template refuses is a RenderError with its words."""
    try:
        text = tokenizer.apply_chat_template(
            [plain(message) for message in messages],
            tools=list(tools) if tools else None,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
        )
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
        roles = [message.get("role") for message in messages]
        raise RenderError(f"the model's chat template refuses messages with roles {roles}: {error}") from error
    return str(text)


def attempt(
    tokenizer: Any, messages: Sequence[Said], tools: Sequence[Said] | None = None, add_generation_prompt: bool = False
) -> str | None:
    """The same, or None where the template refuses."""
    try:
        return apply(tokenizer, messages, tools, add_generation_prompt)
    except RenderError:
        return None
