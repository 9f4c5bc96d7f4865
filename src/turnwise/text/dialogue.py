"""One conversation in tokens: messages are read by bridging, replies are kept as they were sampled, and each prompt
says who wrote which token. A sampled token is never written anew unless the renderer has to render everything again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from renderers.base import ParsedToolCall, RenderedTokens, Renderer, ToolCallParseStatus, extract_message_tool_names

from turnwise.errors import RenderError
from turnwise.text.content import FAILED
from turnwise.types import Attribution, Ids, Message, Tool

Bodies = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Past:
    """Everything read and sampled up to the latest reply; `read` tokens of it are the prompt of that reply."""

    ids: Ids
    read: int
    owner: Ids
    body: Bodies
    messages: int


class Dialogue:
    """Holds the messages, the latest prompt with its attribution, and the reply that was sampled from it.

    In turn: `add` messages, sample from `prompt_ids`, hand the tokens to `reply`, `add` what the environment answers.
    An agent that rewrites `messages` sets `condensed`: the next prompt is drawn from them alone.
    """

    def __init__(self, renderer: Renderer, tools: Sequence[Tool] | None = None) -> None:
        self.renderer = renderer
        self.tools: Any = list(tools) if tools else None
        self.messages: list[Message] = []
        self.prompt_ids: Ids = np.zeros(0, np.int32)
        self._owner: Ids = np.zeros(0, np.int32)
        self._body: Bodies = np.zeros(0, np.int8)
        self._past: Past | None = None
        self._calls = 0
        self.condensed = False

    @property
    def clean(self) -> bool:
        """Whether the latest prompt begins with everything read and sampled up to the latest reply."""
        past = self._past
        return past is None or np.array_equal(self.prompt_ids[: len(past.ids)], past.ids)

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
        self.messages.extend(messages)
        bridged = self._bridge()
        if bridged is None:
            listed: Any = self.messages
            bridged = self.renderer.render(listed, tools=self.tools, add_generation_prompt=True)
            self._owner, self._body = _owners(bridged), _bodies(bridged)
        self.prompt_ids = np.array(bridged.token_ids, np.int32)

    def _bridge(self) -> RenderedTokens | None:
        """Past tokens and the messages since, attributed; None where none stands or the renderer cannot."""
        past = self._past
        if past is None or self.condensed:
            return None
        new: Any = self.messages[past.messages :]
        ids = past.ids.tolist()
        bridged = self.renderer.bridge_to_next_turn(ids[: past.read], ids[past.read :], new, tools=self.tools)
        if bridged is None or bridged.token_ids[: len(ids)] != ids:
            return None
        self._owner, self._body = _compose(past, _owners(bridged), _bodies(bridged))
        return bridged

    def reply(self, completion_ids: Sequence[int], injected: NDArray[np.bool_] | None = None) -> Message:
        """The sampled tokens as an assistant message, which is appended; the tokens themselves stay as they are. Those
        that were `injected` are no part of the message.

        Tool calls that cannot be read stand under "failed_calls", each with its status, raw text and name.
        """
        assert len(self.prompt_ids), "reply before add: nothing was read"
        ids = [int(i) for i in completion_ids]
        own = ids if injected is None else [i for i, told in zip(ids, injected.tolist(), strict=True) if not told]
        parsed = self.renderer.parse_response(own, tools=self.tools, prompt_ids=self.prompt_ids.tolist())
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
        seen = np.concatenate([self.prompt_ids, np.array(ids, np.int32)])
        self.condensed = False
        self._past = Past(seen, len(self.prompt_ids), self._owner, self._body, len(self.messages))
        return message

    def _shape(self, call: ParsedToolCall) -> dict[str, Any]:
        """OpenAI shape, with an id that is unique in the conversation unless the format brings its own."""
        self._calls += 1
        arguments = call.arguments if isinstance(call.arguments, str) else _dump(call.arguments or {})
        function = {"name": call.name, "arguments": arguments}
        return {"id": call.id or f"call_{self._calls}", "type": "function", "function": function}


def _compose(past: Past, owner: Ids, body: Bodies) -> tuple[Ids, Bodies]:
    """Attribution over the past prompt, its sampled reply, and the bridge, whose messages count from 0.

    Prompt [-1 0 0 -1] and 2 sampled tokens of message 1, then a bridge [-1 0 -1]: [-1 0 0 -1, 1 1, -1 2 -1].
    """
    seen, sampled = len(past.ids), len(past.ids) - past.read
    new = np.where(owner[seen:] < 0, -1, owner[seen:] + past.messages)
    reply = np.full(sampled, past.messages - 1)
    owners = np.concatenate([past.owner, reply, new]).astype(np.int32)
    return owners, np.concatenate([past.body, np.ones(sampled, np.int8), body[seen:]])


def _dump(value: Any) -> str:
    """JSON text; halves of characters, which UTF-8 cannot hold, stay escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if any("\ud800" <= c <= "\udfff" for c in text) else text


def _owners(rendered: RenderedTokens) -> Ids:
    return np.array(rendered.message_indices, np.int32)


def _bodies(rendered: RenderedTokens) -> Bodies:
    """Body marks token by token where the renderer has them, else from its content mask, else unknown."""
    known = getattr(rendered, "body", None) or rendered.is_content
    return np.array(known, np.int8) if known else np.full(len(rendered.token_ids), -1, np.int8)
