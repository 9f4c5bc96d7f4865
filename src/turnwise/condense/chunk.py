"""Text to pieces of about a target size; put together, the pieces are the text again, character for character."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from turnwise.config.condense import ChunkConfig

Starts = Callable[[str], Sequence[int]]
"""Where each token of a text begins: "user\\nhi" as user|\\n|hi is 0, 4, 5."""


def chunks(text: str, config: ChunkConfig, starts: Starts) -> list[str]:
    """The pieces, none of them empty; none spans a hard boundary."""
    parts = cut_before(text, config.boundary)
    if config.type == "tokens":
        return [piece for part in parts for piece in windows(part, config.tokens, starts)]
    if config.type == "recursive":
        return [piece for part in parts for piece in recursive(part, config.tokens, config.separators, starts)]
    return parts


def cut_before(text: str, boundary: str) -> list[str]:
    """Cut before each match: "a Q1 b Q2" at Q is "a ", "Q1 b ", "Q2"."""
    places = [m.start() for m in re.finditer(boundary, text)] if boundary else []
    return _cut(text, places)


def windows(text: str, size: int, starts: Starts) -> list[str]:
    """Every `size` tokens a new piece."""
    return _cut(text, [int(place) for place in starts(text)[::size]])


def recursive(text: str, size: int, separators: Sequence[str], starts: Starts) -> list[str]:
    """Cut at the best separator that is there, what is still too long at the next one; then join small neighbours."""
    joined: list[str] = []
    held = 0
    for piece, tokens in _fine(text, size, separators, starts):
        if joined and held + tokens <= size:
            joined[-1] += piece
            held += tokens
        else:
            joined.append(piece)
            held = tokens
    return joined


def _fine(text: str, size: int, separators: Sequence[str], starts: Starts) -> list[tuple[str, int]]:
    """Pieces with their tokens, each small enough, or a single character."""
    tokens = len(starts(text))
    if tokens <= size or len(text) <= 1:
        return [(text, tokens)] if text else []
    for n, separator in enumerate(separators):
        pieces = _cut(text, [m.end() for m in re.finditer(re.escape(separator), text)])
        if len(pieces) > 1:
            return [fine for piece in pieces for fine in _fine(piece, size, separators[n:], starts)]
    half = len(text) // 2
    return [*_fine(text[:half], size, (), starts), *_fine(text[half:], size, (), starts)]


def _cut(text: str, places: Sequence[int]) -> list[str]:
    """The text between places, in any order and however often they come: "abcd" at 1, 3 is "a", "bc", "d"."""
    borders = sorted({0, len(text), *places})
    return [text[a:b] for a, b in pairwise(borders)]
