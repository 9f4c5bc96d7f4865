"""A reply's text as it grows: tokens to the content, reasoning and tool calls that are certain so far.

What may still turn out to be something else is held back: half a character, blanks at the end (a tool call takes them
away), and the beginning of a tag or of a stop string.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from renderers.base import ParsedResponse, ToolCallParseStatus

from turnwise.serve.server import Server

TAG = 24
"""Longest opening tag: what follows a "<" for so many characters is held back."""


@dataclass(slots=True)
class Reply:
    """One completion under way."""

    server: Server
    prompt: Sequence[int]
    tools: Any = None
    stops: tuple[str, ...] = ()
    ids: list[int] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=lambda: {"content": "", "reasoning_content": ""})

    def grow(self, ids: Sequence[int]) -> dict[str, Any]:
        """Read more tokens; returns what is new of content and reasoning, as a delta."""
        self.ids += ids
        parsed = self._parse(self.ids)
        content, reasoning = cut(parsed.content, self.stops), parsed.reasoning_content or ""
        return self._new({"content": self._sure(content), "reasoning_content": self._sure(reasoning)})

    def finish(self, ended_by: int | str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """The whole message, and what of it no delta has said yet."""
        message = self.message(ended_by)
        texts = {key: message.get(key) or "" for key in self.said}
        delta = self._new(texts)
        if message.get("tool_calls"):
            delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(message["tool_calls"])]
        return message, delta

    def message(self, ended_by: int | str | None) -> dict[str, Any]:
        """The assistant message that the tokens so far are; a stop string that ended them is not part of it."""
        parsed = self._parse(self.ids)
        content = cut(parsed.content, self.stops if isinstance(ended_by, str) else ())
        calls = [
            {"id": call.id or f"call_{secrets.token_hex(12)}", "type": "function", "function": _function(call)}
            for call in parsed.tool_calls
            if call.status is ToolCallParseStatus.OK
        ]
        out: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
        if parsed.reasoning_content is not None:
            out["reasoning_content"] = parsed.reasoning_content
        return {**out, "tool_calls": calls} if calls else out

    def _parse(self, ids: Sequence[int]) -> ParsedResponse:
        return self.server.renderer.parse_response(list(ids), tools=self.tools, prompt_ids=list(self.prompt))

    def _new(self, texts: dict[str, str]) -> dict[str, Any]:
        """What is new in texts that only grow; one that has changed instead (never seen) says nothing new."""
        delta = {}
        for key, text in texts.items():
            before = self.said[key]
            if len(text) > len(before) and text.startswith(before):
                delta[key], self.said[key] = text[len(before) :], text
        return delta

    def _sure(self, text: str) -> str:
        text = text.rstrip("\ufffd").rstrip()
        tag = text.rfind("<", max(len(text) - TAG, 0))
        text = text if tag < 0 else text[:tag].rstrip()
        longest = max(map(len, self.stops), default=1) - 1
        return text[: len(text) - longest] if longest else text


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the earliest stop string in it."""
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def _function(call: Any) -> dict[str, str]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments or {})
    return {"name": call.name, "arguments": arguments}
