"""The ChatML renderer: <|im_start|>role, a newline, the body, <|im_end|>, a newline; tools and calls as JSON.

A history is never rewritten: extending a conversation only adds tokens, so every turn can be bridged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from renderers.base import ParsedResponse, Tokenizer, reject_assistant_in_extension

from turnwise.errors import ModelError, RenderError
from turnwise.text.apply import attempt, has_template
from turnwise.text.content import FAILED, Said, calls_of, role_of, text_of
from turnwise.text.parse import CLOSE, OPEN, THINK, THOUGHT, parse
from turnwise.text.pieces import Piece, Rendered, after, lay

START, END = "<|im_start|>", "<|im_end|>"
TOOLS_HEAD = "Tools, one JSON object a line:\n"
TOOLS_TAIL = f'\nTo use one, write:\n{OPEN}\n{{"name": "...", "arguments": {{...}}}}\n{CLOSE}'


class ChatML:
    """Renders messages as ChatML, on the protocol of the `renderers` package.

    `default_system` is what the model's own template says when the first message is not a system message; it is read
    off that template unless given.
    """

    is_prefix_stable = True

    def __init__(self, tokenizer: Tokenizer, default_system: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.default_system = probe_system(tokenizer) if default_system is None else default_system
        self.end = _single(tokenizer, END)
        _single(tokenizer, START)
        text = tokenizer.encode("<|endoftext|>", add_special_tokens=False)
        self.stops = list(dict.fromkeys([self.end, *_ids(tokenizer.eos_token_id), *(text if len(text) == 1 else [])]))

    def pieces(
        self, messages: Sequence[Said], tools: Sequence[Said] | None = None, add_generation_prompt: bool = False
    ) -> list[Piece]:
        """The whole conversation as text pieces; joined, they are the prompt."""
        if not messages:
            raise RenderError("found no messages; expected at least one")
        system = role_of(messages[0]) == "system"
        out = self._head(messages[0] if system else None, tools)
        for n, message in enumerate(messages):
            if n or not system:
                out += block(message, n)
        return out + opening() if add_generation_prompt else out

    def _head(self, system: Said | None, tools: Sequence[Said] | None) -> list[Piece]:
        """The system block: the system message or the default one, then the tools."""
        owner = -1 if system is None else 0
        said = self.default_system if system is None else text_of(system)
        if said is None and not tools:
            return []
        out = [Piece(f"{START}system\n", owner), Piece(said or "", owner, body=system is not None)]
        if tools:
            listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
            out.append(Piece(("\n\n" if said else "") + TOOLS_HEAD + listed + TOOLS_TAIL, owner))
        return [*out, Piece(f"{END}\n", owner)]

    def render(
        self,
        messages: Sequence[Said],
        *,
        tools: Sequence[Said] | None = None,
        add_generation_prompt: bool = False,
    ) -> Rendered:
        """Messages to attributed tokens."""
        return lay(self.tokenizer, self.pieces(messages, tools, add_generation_prompt), messages)

    def render_ids(
        self,
        messages: Sequence[Said],
        *,
        tools: Sequence[Said] | None = None,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        """Messages to token ids."""
        return self.render(messages, tools=tools, add_generation_prompt=add_generation_prompt).token_ids

    def parse_response(
        self,
        token_ids: Sequence[int],
        *,
        tools: Sequence[Said] | None = None,  # noqa: ARG002 - JSON says by itself what is text and what a number
        prompt_ids: Sequence[int] | None = None,  # noqa: ARG002 - a ChatML prompt never opens reasoning
    ) -> ParsedResponse:
        """Completion tokens to content, reasoning and tool calls."""
        return parse(self.tokenizer, token_ids, self.stops)

    def get_stop_token_ids(self) -> list[int]:
        """Tokens that end a reply, the usual one first."""
        return list(self.stops)

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: Sequence[int],
        previous_completion_ids: Sequence[int],
        new_messages: Sequence[Said],
        *,
        tools: Sequence[Said] | None = None,  # noqa: ARG002 - they stand in the first block, which is kept
    ) -> Rendered | None:
        """Previous prompt and completion, closed if a limit cut it, then the new messages and a generation prompt."""
        listed: Any = list(new_messages)
        if not len(previous_prompt_ids) or not listed or reject_assistant_in_extension(listed):
            return None
        previous = [*previous_prompt_ids, *previous_completion_ids]
        if not len(previous_completion_ids) or previous[-1] not in self.stops:
            previous.append(self.end)
        added = [piece for n, message in enumerate(listed) for piece in block(message, n)]
        extension = lay(self.tokenizer, [Piece(END), Piece("\n"), *added, *opening()], listed, skip=1)
        return after(previous, extension)


def block(message: Said, n: int) -> list[Piece]:
    """One message; an assistant's text and end mark are what the model writes."""
    role = role_of(message)
    if role != "assistant":
        return [Piece(f"{START}{role}\n", n), Piece(text_of(message), n, body=True), Piece(f"{END}\n", n)]
    written = Piece(reply(message) + END, n, body=True, sampled=True)
    return [Piece(f"{START}assistant\n", n), written, Piece("\n", n)]


def opening() -> list[Piece]:
    """The generation prompt."""
    return [Piece(f"{START}assistant\n")]


def reply(message: Said) -> str:
    """What the model wrote to say this message: reasoning, content, calls, calls that failed."""
    reasoning = message.get("reasoning_content")
    thought = "" if reasoning is None else f"{THINK}\n{reasoning}\n{THOUGHT}\n\n"
    calls = [
        f'{OPEN}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n{CLOSE}'
        for name, arguments in calls_of(message)
    ]
    calls += [
        f"{OPEN}\n{failed['raw']}" + ("" if failed["status"] == "unclosed_block" else f"\n{CLOSE}")
        for failed in message.get(FAILED) or []
    ]
    content = text_of(message)
    return thought + "\n".join([content, *calls] if content else calls)


def probe_system(tokenizer: Tokenizer) -> str | None:
    """The system text that the tokenizer's own template adds before a lone user message, None where it adds none."""
    if not has_template(tokenizer):
        return None
    text = attempt(tokenizer, [{"role": "user", "content": "x"}]) or ""
    head, tail = f"{START}system\n", f"{END}\n{START}user\nx{END}\n"
    return text[len(head) : -len(tail)] if text.startswith(head) and text.endswith(tail) else None


def _ids(token: int | None) -> list[int]:
    return [] if token is None else [token]


def _single(tokenizer: Tokenizer, mark: str) -> int:
    ids = tokenizer.encode(mark, add_special_tokens=False)
    if len(ids) != 1:
        raise ModelError(
            f"found {mark} as {len(ids)} tokens; expected one token. ChatML needs a tokenizer that has it as a special "
            "token; name another renderer (renderer = ...) for this model"
        )
    return int(ids[0])
