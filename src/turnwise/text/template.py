"""The renderer for any chat template: attribution by drawing growing prefixes and finding bodies in them, bridging
where probe conversations show that the template only ever appends. What cannot be told is unknown, never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from renderers.base import ParsedResponse, Tokenizer, reject_assistant_in_extension

from turnwise.errors import ModelError
from turnwise.text.apply import apply, attempt
from turnwise.text.bodies import find
from turnwise.text.content import Said, text_of
from turnwise.text.parse import THINK, parse
from turnwise.text.pieces import Piece, Rendered, after, decode, encode, lay, rendered
from turnwise.text.probe import ASK, CALL, CALLED, LOOK, REASONED, REPLY, SAID, THOUGHT, end_mark
from turnwise.text.spread import spread
from turnwise.types import Message, Tool


class Template:
    """Renders messages by a tokenizer's own chat template, on the protocol of the `renderers` package."""

    is_prefix_stable = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        opened = apply(tokenizer, ASK, add_generation_prompt=True)
        self.thinking = opened.rstrip().endswith(THINK)
        self.close = end_mark(tokenizer)
        self.mark = "" if self.close is None else decode(tokenizer, [self.close])
        stops = dict.fromkeys(i for i in (self.close, tokenizer.eos_token_id) if i is not None)
        if not stops:
            raise ModelError(
                "found no token that ends a reply, neither behind a reply in the chat template nor as eos_token; "
                "expected one. Set the tokenizer's eos_token, or name a renderer (renderer = ...)"
            )
        self.stops = list(stops)
        self.appends = all(self._proves([*ASK, reply], ASK) for reply in (SAID, THOUGHT, REASONED))
        self.appends_tools = (
            self.appends
            and self._proves([*ASK, SAID], ASK, [LOOK])
            and all(self._proves([*ASK, CALLED], [REPLY, *more], [LOOK]) for more in ([], ASK))
        )

    def render(
        self,
        messages: Sequence[Said],
        *,
        tools: Sequence[Said] | None = None,
        add_generation_prompt: bool = False,
    ) -> Rendered:
        """Messages to tokens, attributed as far as the template shows it."""
        text = apply(self.tokenizer, messages, tools, add_generation_prompt)
        edges = [self._edge(messages[:n], tools, text) for n in range(len(messages) + 1)]
        others = [n for n, m in enumerate(messages) if m.get("role") != "assistant" and text_of(m)]
        bodies = find(
            lambda drawn: attempt(self.tokenizer, drawn, tools, add_generation_prompt), messages, others, text
        )
        replies = {n: self._reply(messages[: n + 1], tools, text) for n, m in enumerate(messages) if _wrote(m)}
        written = {n: span for n, span in replies.items() if span}
        missing = [n for n in (*others, *replies) if n not in bodies and n not in written]
        owner, body = spread(len(text), edges, {**bodies, **written}, missing)
        ids, starts = encode(self.tokenizer, text)
        assistant = np.isin(owner, list(replies)) & (body == 1)
        sampled = [] if set(missing) & set(replies) else assistant[starts].tolist()
        return rendered(ids, messages, owner=owner[starts].tolist(), body=body[starts].tolist(), sampled=sampled)

    def _edge(self, head: Sequence[Said], tools: Sequence[Said] | None, text: str) -> int | None:
        """Where the first messages end in the text, if the text begins as they do alone."""
        drawn = attempt(self.tokenizer, head, tools) if head else ""
        return len(drawn) if drawn is not None and text.startswith(drawn) else None

    def _reply(self, head: Sequence[Said], tools: Sequence[Said] | None, text: str) -> tuple[int, int] | None:
        """What the model writes for the last message: from behind the generation prompt to the end mark."""
        opened = attempt(self.tokenizer, head[:-1], tools, True)
        drawn = attempt(self.tokenizer, head, tools)
        if opened is None or drawn is None or not drawn.startswith(opened):
            return None
        end = drawn.rfind(self.mark) + len(self.mark) if self.mark else len(drawn)
        return (len(opened), end) if end > len(opened) and text.startswith(drawn[:end]) else None

    def render_ids(
        self,
        messages: Sequence[Said],
        *,
        tools: Sequence[Said] | None = None,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        """Messages to token ids, as the template has them."""
        return encode(self.tokenizer, apply(self.tokenizer, messages, tools, add_generation_prompt))[0]

    def parse_response(
        self,
        token_ids: Sequence[int],
        *,
        tools: Sequence[Said] | None = None,  # noqa: ARG002 - JSON says by itself what is text and what a number
        prompt_ids: Sequence[int] | None = None,  # noqa: ARG002 - the template opens reasoning always or never
    ) -> ParsedResponse:
        """Completion tokens to content, reasoning and tool calls (as JSON in tags; other formats stay text)."""
        return parse(self.tokenizer, token_ids, self.stops, self.thinking)

    def get_stop_token_ids(self) -> list[int]:
        """Tokens that end a reply, the template's own first."""
        return list(self.stops)

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: Sequence[int],
        previous_completion_ids: Sequence[int],
        new_messages: Sequence[Said],
        *,
        tools: Sequence[Said] | None = None,
    ) -> Rendered | None:
        """Previous prompt and completion, closed if a limit cut it, then the new messages; None if not append-only."""
        tooled = bool(tools) or any(m.get("role") == "tool" for m in new_messages)
        if not (self.appends_tools if tooled else self.appends) or not len(previous_prompt_ids):
            return None
        return self._extend(previous_prompt_ids, previous_completion_ids, new_messages, tools)

    def _extend(
        self, prompt: Sequence[int], completion: Sequence[int], new: Sequence[Said], tools: Sequence[Said] | None
    ) -> Rendered | None:
        """Draw the new messages behind a made-up exchange and keep what comes after its end mark."""
        listed: Any = list(new)
        if not listed or self.close is None or reject_assistant_in_extension(listed):
            return None
        exchange = [*ASK, _caller(new)]
        before = attempt(self.tokenizer, exchange, tools) or ""
        text = attempt(self.tokenizer, [*exchange, *new], tools, True) or ""
        cut = before.rfind(self.mark) + len(self.mark)
        if not before or not text.startswith(before[:cut]):
            return None
        wanted = [n for n, m in enumerate(new, 2) if text_of(m)]
        bodies = find(lambda drawn: attempt(self.tokenizer, drawn, tools, True), [*exchange, *new], wanted, text)
        if len(bodies) < len(wanted):
            return None
        pieces = _cut(text, cut, [(n - 2, *bodies[n]) for n in sorted(bodies, key=lambda n: bodies[n])])
        previous = [*prompt, *completion]
        if not len(completion) or previous[-1] not in self.stops:
            previous.append(self.close)
        return after(previous, lay(self.tokenizer, [Piece(self.mark), *pieces], new, skip=1))

    def _proves(self, history: list[Message], new: list[Message], tools: list[Tool] | None = None) -> bool:
        """Whether the template keeps this history as it is, and bridging adds the tokens that it adds."""
        opened = attempt(self.tokenizer, history[:-1], tools, True)
        said = attempt(self.tokenizer, history, tools)
        whole = attempt(self.tokenizer, [*history, *new], tools, True)
        if self.close is None or opened is None or said is None or whole is None:
            return False
        cut = said.rfind(self.mark) + len(self.mark)
        if cut <= len(opened) or not said.startswith(opened) or not whole.startswith(said[:cut]):
            return False
        ids, starts = encode(self.tokenizer, whole)
        added = [token for token, start in zip(ids, starts, strict=True) if start >= cut]
        bridged = self._extend([self.close], [self.close], new, tools)
        return bridged is not None and bridged.token_ids[2:] == added


def _wrote(message: Said) -> bool:
    return message.get("role") == "assistant"


def _caller(new: Sequence[Said]) -> Message:
    """A reply that new messages can follow: it makes the calls that tool messages among them answer."""
    answered = [m for m in new if m.get("role") == "tool"]
    calls = [
        {
            **CALL,
            "id": m.get("tool_call_id") or CALL["id"],
            "function": {"name": m.get("name") or "look", "arguments": {}},
        }
        for m in answered
    ]
    return {**SAID, "tool_calls": calls} if calls else SAID


def _cut(text: str, start: int, bodies: list[tuple[int, int, int]]) -> list[Piece]:
    """Text from `start` on as scaffold and bodies (message, begin, end) in turn."""
    pieces = []
    for n, begin, end in bodies:
        pieces += [Piece(text[start:begin], n), Piece(text[begin:end], n, body=True)]
        start = end
    return [*pieces, Piece(text[start:])]
