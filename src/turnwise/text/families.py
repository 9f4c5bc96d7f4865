"""The templates whose prefix behaviour is known and pinned: how each is made, on any tokenizer that has their marks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from renderers.base import Renderer

from turnwise.text.choose import choose

MARKS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
)
"""Tokens that some family must have, beside ChatML's."""
_BODY = (
    "{% for c in m.tool_calls or [] %}{{ '<tool_call>' + (c.function | tojson) + '</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
APPENDS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content }}" + _BODY
)
"""A chat template of no family, which only ever appends."""
FORGETS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.reasoning_content and loop.last %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}"
    "{{ m.content if loop.last else m.content.split('</think>')[-1] }}" + _BODY
)
"""One that is not append-only: the reasoning of every reply but the last is taken out."""


@dataclass(frozen=True, slots=True)
class Family:
    """One template: the renderer to ask for, and the chat template to give the tokenizer before, if not its own."""

    about: str
    renderer: str
    template: str | None = None

    def make(self, tokenizer: Any) -> Renderer:
        """The renderer on this tokenizer, which is changed."""
        if self.template is not None:
            tokenizer.chat_template = self.template
        return choose(tokenizer, self.renderer, "")


FAMILIES = {
    "qwen3": Family("Qwen3", "qwen3"),
    "llama-3": Family("Llama 3.2", "llama-3"),
    "chatml": Family("ChatML: SmolLM2, `tiny`", "chatml"),
    "appends": Family("any other template that only appends", "template", APPENDS),
    "forgets": Family("a template that takes earlier reasoning out", "template", FORGETS),
}
"""By name."""

Make = Callable[[], Any]
"""Gives a fresh tokenizer that holds ChatML's marks and MARKS."""
