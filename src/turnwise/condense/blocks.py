"""What was condensed in an episode: numbered blocks, the text that stands for each, and the original behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from turnwise.types import Tool

BLOCK = re.compile(r"<block_(\d+)>.*?</block_\1>", re.DOTALL)
EXTRACT = "extract_condensed"
TOOL: Tool = {
    "type": "function",
    "function": {
        "name": EXTRACT,
        "description": "Gives back the full text behind condensed blocks, <block_1> and so on; each opens once.",
        "parameters": {
            "type": "object",
            "properties": {"blocks": {"type": "array", "items": {"type": "integer"}}},
            "required": ["blocks"],
        },
    },
}


class Blocks:
    """The blocks of one episode, numbered from 1; `settled` are whole messages in which nothing is left to condense."""

    def __init__(self) -> None:
        self.originals: list[str] = []
        self.shown: list[str] = []
        self.opened: set[int] = set()
        self.settled: set[str] = set()

    def draw(self, short: str) -> str:
        """How the next block would stand in a message; text that looks like the end of a block is told apart."""
        number = len(self.shown) + 1
        return f"<block_{number}>{short.replace('</block_', '</ block_')}</block_{number}>"

    def add(self, original: str, short: str) -> str:
        """Take a block in, and return it as it stands in a message."""
        shown = self.draw(short)
        self.originals.append(original)
        self.shown.append(shown)
        return shown

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Stretches of a text, and whether each is one of our blocks: text that only looks like one is none."""
        found, end = list[tuple[str, bool]](), 0
        for match in BLOCK.finditer(text):
            number = int(match[1]) if len(match[1]) < 9 else 0
            if 0 < number <= len(self.shown) and match[0] == self.shown[number - 1]:
                found += [(text[end : match.start()], False), (match[0], True)]
                end = match.end()
        return [(part, ours) for part, ours in [*found, (text[end:], False)] if part]

    def within(self, text: str) -> bool:
        """Whether one of our blocks stands in a text."""
        return any(ours for _, ours in self.split(text))

    def extract(self, given: dict[str, Any]) -> str:
        """The answer to extract_condensed(blocks=[...]), line by line of what was asked for."""
        asked: Sequence[Any] = given["blocks"]
        return "\n\n".join(self._open(number) for number in dict.fromkeys(map(_number, asked))) or "no block was named"

    def _open(self, number: int | str) -> str:
        if not isinstance(number, int) or not 0 < number <= len(self.originals):
            there = f"there are 1 to {len(self.originals)}" if self.originals else "nothing was condensed yet"
            return f"no block {number}; {there}"
        if number in self.opened:
            return f"block {number} was opened before; a block opens once"
        self.opened.add(number)
        return f"block {number}:\n{self.originals[number - 1]}"


def _number(given: Any) -> int | str:
    """3, "3" and "block_3" are 3."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    word = str(given).removeprefix("block_")
    return int(word) if word.isascii() and word.isdigit() and len(word) < 9 else str(given)[:40]
