"""One conversation in tokens: messages are read by bridging, replies are kept as they were sampled, and each prompt
says who wrote which token. A sampled token is never written anew unless the renderer has to render everything again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from renderers.base import (
    ParsedResponse,
    ParsedToolCall,
    RenderedTokens,
    Renderer,
    ToolCallParseStatus,
    extract_message_tool_names,
)

from turnwise.errors import RenderError
from turnwise.text.content import FAILED
from turnwise.text.pieces import decode, tokenizer_of
from turnwise.types import Attribution, Ids, Message, Tool

Bodies = NDArray[np.int8]
REFUSALS = (ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""What renderers raise about messages or tokens that they do not expect."""


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
    An agent may `rewrite` what stands after an `add`: `condensed` then says so until the next reply. One that edits
    `messages` itself sets it before it adds.
    """

    def __init__(self, renderer: Renderer, tools: Sequence[Tool] | None = None) -> None:
        self.renderer = renderer
        self.tools: Any = list(tools) if tools else None
        self.messages: list[Message] = []
        self.prompt_ids: Ids = np.zeros(0, np.int32)
        self._owner: Ids = np.zeros(0, np.int32)
        self._body: Bodies = np.zeros(0, np.int8)
        self._past: Past | None = None
        self._calls = self._bad = 0
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
            self._render()
        else:
            self.prompt_ids = np.array(bridged.token_ids, np.int32)

    def rewrite(self, messages: Sequence[Message]) -> None:
        """Replace the history, the newest messages included: the prompt is drawn from these alone."""
        assert messages, "rewrite to nothing: a prompt needs something to answer"
        self.messages[:] = messages
        self.condensed = self._past is not None
        self._render()

    def _render(self) -> None:
        listed: Any = self.messages
        try:
            drawn = self.renderer.render(listed, tools=self.tools, add_generation_prompt=True)
        except REFUSALS as error:
            roles = [message.get("role") for message in self.messages]
            raise RenderError(f"the renderer refuses messages with roles {roles}: {error}") from error
        self._owner, self._body = _owners(drawn), _bodies(drawn)
        self.prompt_ids = np.array(drawn.token_ids, np.int32)

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

        Tool calls that cannot be read stand under "failed_calls", each with an id, its status, raw text and name.
        """
        assert len(self.prompt_ids), "reply before add: nothing was read"
        ids = [int(i) for i in completion_ids]
        own = ids if injected is None else [i for i, told in zip(ids, injected.tolist(), strict=True) if not told]
        parsed = self._parsed(own)
        message: Message = {"role": "assistant", "content": parsed.content}
        if parsed.reasoning_content is not None:
            message["reasoning_content"] = parsed.reasoning_content
        good = [call for call in parsed.tool_calls if _sound(call)]
        bad = [call for call in parsed.tool_calls if not _sound(call)]
        if good:
            message["tool_calls"] = [self._shape(call) for call in good]
        if bad:
            message[FAILED] = [self._failed(call) for call in bad]
        self.messages.append(message)
        seen = np.concatenate([self.prompt_ids, np.array(ids, np.int32)])
        self.condensed = False
        self._past = Past(seen, len(self.prompt_ids), self._owner, self._body, len(self.messages))
        return message

    def _parsed(self, ids: list[int]) -> ParsedResponse:
        """The reply in parts; one that a family's parser breaks on is text, and a call that cannot be read."""
        try:
            return self.renderer.parse_response(ids, tools=self.tools, prompt_ids=self.prompt_ids.tolist())
        except REFUSALS:
            text = decode(tokenizer_of(self.renderer), ids)
            call = ParsedToolCall(text, status=ToolCallParseStatus.MALFORMED_STRUCTURE)
            return ParsedResponse(text, None, [call])

    def _failed(self, call: ParsedToolCall) -> dict[str, Any]:
        self._bad += 1
        name = call.name if isinstance(call.name, str) else None
        ok = call.status is ToolCallParseStatus.OK
        status = ToolCallParseStatus.MALFORMED_STRUCTURE if ok else call.status
        return {"id": f"failed_{self._bad}", "status": str(status), "raw": call.raw, "name": name}

    def _shape(self, call: ParsedToolCall) -> dict[str, Any]:
        """OpenAI shape, with an id that is unique in the conversation unless the format brings its own."""
        self._calls += 1
        arguments = call.arguments if isinstance(call.arguments, str) else _dump(call.arguments or {})
        function = {"name": call.name, "arguments": arguments}
        return {"id": call.id or f"call_{self._calls}", "type": "function", "function": function}


def _sound(call: ParsedToolCall) -> bool:
    """Whether a call can be made: families pass on names and arguments of any kind."""
    named = isinstance(call.name, str) and bool(call.name)
    return call.status is ToolCallParseStatus.OK and named and isinstance(call.arguments, dict | str | None)


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
