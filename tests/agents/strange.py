"""Replies no template ever wrote, for every parser: `python tests/agents/strange.py 10000` prints what became of them.

Truncated and nested JSON, halves of characters, names twice, wrong types, unknown tools, and each family's own marks in
any order.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from renderers.base import MODEL_RENDERER_MAP, Renderer, create_renderer
from renderers.configs import config_from_name
from tooled import tool

from turnwise.agents.desk import Desk, ordered, rest
from turnwise.testing import byte_tokenizer
from turnwise.text import ChatML, Dialogue, Template
from turnwise.text.content import calls_of, text_of

ABROAD = {"gpt-oss"}
"""Families whose tokenizer has to be downloaded before a renderer can be made."""
TOOLS = [tool("echo", text="string"), tool("count", n="integer", more="array")]
TAGS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "[TOOL_CALLS]", "\n", "<function=echo>"]
TAGS += [
    "</function>",
    "<parameter=text>",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "functions.echo:0",
]
ODD = ['"', "\\", "{", "}", "[", "]", "\\ud800", "\\u0000", "\x00", "é字🙂", "null", "NaN", "1e999", "-", ":", ",", "'"]


class Marked:
    """A byte tokenizer to which any mark that a family asks for is added as a token of its own."""

    def __init__(self) -> None:
        self.inner: Any = byte_tokenizer()
        self.marks: set[str] = set()
        self.making = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.inner(*given, **named)

    def __len__(self) -> int:
        return len(self.inner)

    def encode(self, text: str, **named: Any) -> list[int]:
        if self.making and len(text) < 40 and any(sign in text for sign in "<\uff5c["):
            self._add(text)
        return list(self.inner.encode(text, **named))

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        self._add(tokens)
        return self.inner.convert_tokens_to_ids(tokens)

    def _add(self, mark: str) -> None:
        if mark not in self.inner.get_vocab():
            self.marks.add(mark)
            self.inner.add_tokens([mark], special_tokens=True)


def parsers() -> dict[str, Callable[[], tuple[Renderer, list[str]]]]:
    """Every renderer by name: made on demand, with the marks of its family."""

    def family(name: str) -> tuple[Renderer, list[str]]:
        tokenizer: Any = Marked()
        made = create_renderer(tokenizer, config_from_name(name))
        tokenizer.making = False
        return made, [*sorted(tokenizer.marks), own_call(made)]

    def ours(kind: Any) -> tuple[Renderer, list[str]]:
        made = kind(byte_tokenizer())
        return made, [own_call(made)]

    names = sorted(set(MODEL_RENDERER_MAP.values()) - ABROAD)
    families = {name: (lambda name=name: family(name)) for name in names}
    return {"chatml": lambda: ours(ChatML), "template": lambda: ours(Template), **families}


def own_call(renderer: Renderer) -> str:
    """How the family itself writes a reply that calls two tools, or one where it takes no more."""
    ask: list[Any] = [{"role": "user", "content": "go"}]
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": given}}
        for n, (name, given) in enumerate([("echo", {"text": "a"}), ("count", {"n": 2, "more": [1, {"b": None}]})])
    ]
    start = renderer.render_ids(ask, tools=TOOLS, add_generation_prompt=True)
    reply: dict[str, Any] = {"role": "assistant", "content": "so", "tool_calls": calls}
    try:
        ids = renderer.render_ids([*ask, reply], tools=TOOLS)
    except ValueError:
        ids = renderer.render_ids([*ask, {**reply, "tool_calls": calls[:1]}], tools=TOOLS)
    tokenizer: Any = getattr(renderer, "tokenizer", None) or renderer._tokenizer
    return str(tokenizer.decode(ids[len(start) :]))


def replies(count: int, marks: list[str], seed: int = 0) -> Iterator[str]:
    """Strange replies, always the same ones for a seed."""
    draw = random.Random(f"{seed}:{marks}")
    makers = [_call, _broken, _soup, _xml]
    for _ in range(count):
        parts = [draw.choice(makers)(draw, marks) for _ in range(draw.choice([1, 1, 2, 4]))]
        text = draw.choice(["", "\n", "hm "]).join(parts)
        yield text[: draw.randrange(len(text) + 1)] if draw.random() < 0.3 else text


def _value(draw: random.Random, depth: int = 0) -> Any:
    plain = [None, True, -1, 1.5, "", "a", "echo", "字🙂", '{"text": 1}', "\ud800", "x" * 50, 10**40]
    if depth > 4 or draw.random() < 0.5:
        return draw.choice(plain)
    inner = [_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return inner if draw.random() < 0.5 else dict(zip(["text", "n", "", "name"], inner, strict=False))


def _call(draw: random.Random, marks: list[str]) -> str:
    """A call as the family writes it, or as JSON in tags with parts of any kind."""
    if draw.random() < 0.3:
        return marks[-1]
    name = draw.choice(["echo", "count", "rum", "", None, 3, ["echo"], {"name": "echo"}])
    given = draw.choice([_value(draw), {"text": _value(draw)}, json.dumps({"text": "a"}), {"n": 1, "more": []}])
    body = json.dumps({"name": name, draw.choice(["arguments", "parameters", "args"]): given})
    twice = body[:-1] + ', "name": "count", "arguments": {"n": 2}}' if draw.random() < 0.2 else body
    return f"<tool_call>{draw.choice(['', chr(10)])}{twice}{draw.choice(['', chr(10)])}</tool_call>"


def _broken(draw: random.Random, marks: list[str]) -> str:
    """A call of which something is missing, or doubled, or nested in itself."""
    text = _call(draw, marks)
    at, to = sorted(draw.randrange(len(text) + 1) for _ in range(2))
    return draw.choice(
        [text[:at], text[at:], text[:at] + text[to:], text[:to] + text[at:], text[:at] + text + text[at:]]
    )


def _soup(draw: random.Random, marks: list[str]) -> str:
    return "".join(draw.choice(draw.choice([TAGS, ODD, marks or TAGS])) for _ in range(draw.randrange(1, 12)))


def _xml(draw: random.Random, marks: list[str]) -> str:
    """Marks of the family around pieces of a call."""
    pieces = ["echo", "count", '{"text": "a"}', "text", "a", "\n", "0", json.dumps(_value(draw))]
    words = [draw.choice(marks or TAGS), draw.choice(pieces), draw.choice([*marks, *TAGS]), draw.choice(pieces)]
    return "".join(words)


def read(renderer: Renderer, text: str) -> Counter[str]:
    """One reply through the parser, the desk, and back into words; what was found in it."""
    dialogue = Dialogue(renderer, tools=TOOLS)
    dialogue.prompt_ids = np.array([65, 66], np.int32)
    tokenizer: Any = getattr(renderer, "tokenizer", None) or renderer._tokenizer  # type: ignore[attr-defined]
    message = dialogue.reply(tokenizer.encode(text.encode("utf-8", "ignore").decode(), add_special_tokens=False))
    desk = Desk(TOOLS, answering=True)
    answered = desk.answers(message)
    assert text_of(message) is not None and len(calls_of(message)) == len(message.get("tool_calls", []))
    assert len(answered) == desk.faults(message) == len(ordered(message, answered, []))
    left = rest(message, answered)
    json.dumps(message)
    return Counter(
        replies=1,
        good=len((left or {}).get("tool_calls", [])),
        faulty=sum(a["tool_call_id"].startswith("call") for a in answered),
        unread=len(message.get("failed_calls", [])),
    )


def main(count: int) -> None:
    for name, make in parsers().items():
        renderer, marks = make()
        began, found = time.perf_counter(), Counter[str]()
        for text in replies(count, marks):
            found.update(read(renderer, text))
        seconds = time.perf_counter() - began
        print(f"{name:18} {dict(found)} {seconds * 1e6 / count:.0f} us a reply", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
