"""One conversation in tokens: messages are read by bridging, replies are kept as they were sampled, and each prompt
says who wrote which token. A sampled token is never written anew unless the renderer has to render everything again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from renderers.base import ParsedToolCall, RenderedTokens, Renderer, ToolCallParseStatus, extract_message_tool_names

from turnwise.errors import RenderError
from turnwise.text.content import FAILED
from turnwise.types import Attribution, Ids, Message, Tool

NOTHING: Ids = np.zeros(0, np.int32)


class Dialogue:
    """Holds the messages, the latest prompt with its attribution, and the reply that was sampled from it.

    In turn: `add` messages, sample from `prompt_ids`, hand the tokens to `reply`, `add` what the environment answers.
    """

    def __init__(self, renderer: Renderer, tools: Sequence[Tool] | None = None) -> None:
        self.renderer = renderer
        self.tools: Any = list(tools) if tools else None
        self.messages: list[Message] = []
        self.prompt_ids = NOTHING
        self.clean = True
        """Whether the latest prompt begins with everything read and sampled before it."""
        self._owner = NOTHING
        self._body = np.zeros(0, np.int8)
        self._seen = NOTHING
        """Prompt and completion of the latest turn."""
        self._calls = 0

    @property
    def attribution(self) -> Attribution:
        """Who wrote each token of the latest prompt; tool names are looked up in the whole conversation."""
        listed: Any = self.messages
        roles = tuple(str(m.get("role") or "") for m in self.messages)
        return Attribution(self._owner, self._body, roles, tuple(extract_message_tool_names(listed)))

    def add(self, messages: Sequence[Message]) -> None:
        """Read new messages: behind the tokens so far where the renderer can bridge, else by rendering everything."""
        if not messages:
            raise RenderError("found no new messages; expected at least one: a prompt needs something to answer")
        bridged = self._bridge(messages)
        first = len(self.messages)
        self.messages.extend(messages)
        listed: Any = self.messages
        if bridged is None:
            bridged = self.renderer.render(listed, tools=self.tools, add_generation_prompt=True)
            self._owner, self._body = _owners(bridged), _bodies(bridged)
        else:
            self._compose(bridged, first)
        self.prompt_ids = np.array(bridged.token_ids, np.int32)
        self.clean = bool(np.array_equal(self.prompt_ids[: len(self._seen)], self._seen))

    def _bridge(self, messages: Sequence[Message]) -> RenderedTokens | None:
        """The bridged prompt, None where there is nothing to bridge from or the renderer cannot."""
        read = len(self.prompt_ids)
        if not len(self._seen) or not self.messages or self.messages[-1].get("role") != "assistant":
            return None
        new: Any = list(messages)
        prompt, completion = self._seen[:read].tolist(), self._seen[read:].tolist()
        bridged = self.renderer.bridge_to_next_turn(prompt, completion, new, tools=self.tools)
        return bridged if bridged is not None and bridged.token_ids[: len(self._seen)] == self._seen.tolist() else None

    def _compose(self, bridged: RenderedTokens, first: int) -> None:
        """Attribution over old prompt, sampled reply and bridge.

        Prompt [-1 0 0 -1], 2 sampled tokens, bridge [-1 0 -1] with 2 messages before it: [-1 0 0 -1, 1 1, -1 2 -1].
        """
        read, seen = len(self.prompt_ids), len(self._seen)
        owner, body = _owners(bridged)[seen:], _bodies(bridged)[seen:]
        sampled = np.full(seen - read, first - 1, np.int32)
        self._owner = np.concatenate([self._owner, sampled, np.where(owner < 0, owner, owner + first)]).astype(np.int32)
        self._body = np.concatenate([self._body, np.ones(seen - read, np.int8), body])

    def reply(self, completion_ids: Sequence[int]) -> Message:
        """The sampled tokens as an assistant message, which is appended; the tokens themselves stay as they are.

        Tool calls that cannot be read stand under "failed_calls", each with its status, raw text and name.
        """
        assert len(self.prompt_ids), "reply before add: nothing was read"
        ids = [int(i) for i in completion_ids]
        parsed = self.renderer.parse_response(ids, tools=self.tools, prompt_ids=self.prompt_ids.tolist())
        message: Message = {"role": "assistant", "content": parsed.content}
        if parsed.reasoning_content is not None:
            message["reasoning_content"] = parsed.reasoning_content
        good = [call for call in parsed.tool_calls if call.status is ToolCallParseStatus.OK]
        bad = [call for call in parsed.tool_calls if call.status is not ToolCallParseStatus.OK]
        if good:
            message["tool_calls"] = [self._shape(call) for call in good]
        if bad:
            message[FAILED] = [{"status": str(call.status), "raw": call.raw, "name": call.name} for call in bad]
        self.messages.append(message)
        self._seen = np.concatenate([self.prompt_ids, np.array(ids, np.int32)])
        return message

    def _shape(self, call: ParsedToolCall) -> dict[str, Any]:
        """OpenAI shape, with an id that is unique in the conversation unless the format brings its own."""
        self._calls += 1
        arguments = call.arguments if isinstance(call.arguments, str) else _dump(call.arguments or {})
        function = {"name": call.name, "arguments": arguments}
        return {"id": call.id or f"call_{self._calls}", "type": "function", "function": function}


def _dump(value: Any) -> str:
    """JSON text; halves of characters, which UTF-8 cannot hold, stay escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if any("\ud800" <= c <= "\udfff" for c in text) else text


def _owners(rendered: RenderedTokens) -> Ids:
    return np.array(rendered.message_indices, np.int32)


def _bodies(rendered: RenderedTokens) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Body marks token by token where the renderer has them, else from its content mask, else unknown."""
    known = getattr(rendered, "body", None) or rendered.is_content
    return np.array(known, np.int8) if known else np.full(len(rendered.token_ids), -1, np.int8)
