"""Small conversations that show what a chat template does, and the token that it ends replies with."""

from __future__ import annotations

from typing import Any

import numpy as np
from renderers.base import Tokenizer

from turnwise.errors import ModelError
from turnwise.text.apply import apply
from turnwise.text.bodies import MARK, mark
from turnwise.text.pieces import encode
from turnwise.types import Message, Tool

LOOK: Tool = {
    "type": "function",
    "function": {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
CALL = {"id": "call00000", "type": "function", "function": {"name": "look", "arguments": {"at": "x"}}}
ASK: list[Message] = [{"role": "user", "content": "u"}]
SAID: Message = {"role": "assistant", "content": "a b"}
THOUGHT: Message = {"role": "assistant", "content": "<think>\nr\n</think>\n\na b"}
REASONED: Message = {"role": "assistant", "content": "a b", "reasoning_content": "r"}
CALLED: Message = {"role": "assistant", "content": "a b", "tool_calls": [CALL]}
REPLY: Message = {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "t"}


def end_mark(tokenizer: Tokenizer) -> int | None:
    """The special token that the template puts right behind a reply, None where there is none."""
    text = apply(tokenizer, [*ASK, {**SAID, "content": mark(0)}])
    found = list(MARK.finditer(text))
    if not found:
        raise ModelError("the chat template drops the text of replies; name a renderer (renderer = ...)")
    ids, starts = encode(tokenizer, text)
    at = np.flatnonzero(starts == found[-1].end())
    added: Any = getattr(tokenizer, "get_added_vocab", dict)()
    special = {tokenizer.eos_token_id, *added.values()}
    return ids[int(at[0])] if len(at) and ids[int(at[0])] in special else None
