"""Extractive: of a text, the sentences that say most, and the keywords that are left, within a budget of tokens.

A sentence is worth the keywords it holds. Words of the query weigh most; one that holds several keywords relates them,
and the opening says what the text is about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.condense.chunk import Starts
from turnwise.condense.written import Request, Written
from turnwise.errors import ConfigError

SENTENCE = re.compile(r".+?(?:[.!?]+[\"')\]]*(?=\s|$)|[。！？]+|\n+|$)", re.DOTALL)
ASKED, OPENING, RELATION = 3.0, 1.0, 1.5
"""What a word of the query weighs beside the best keyword's 1, what the opening is worth beside one, and by how much
several keywords in one sentence raise its worth."""
MOST = 24
"""Keywords that are looked for."""


class Keywords:
    """Implements Condenser with the keywords that YAKE finds: statistics of the one text, no model, no corpus."""

    def __init__(self, starts: Starts, language: str = "en") -> None:
        try:
            from yake import KeywordExtractor
        except ImportError as error:
            raise ConfigError(
                'found rollout.condense.type "keywords" without the package yake; expected it: pip install '
                "'turnwise[keywords]', or choose model or drop"
            ) from error
        self.starts = starts
        self._extractor: Any = KeywordExtractor(lan=language, n=2, top=MOST)

    async def shorten(self, request: Request) -> Written:
        found = [str(word) for word, _ in self._extractor.extract_keywords(request.text)]
        text = extract(request.text, request.budget, weigh(found, request.query), self.starts)
        return Written(text or None, why="" if text else "empty")


def weigh(found: Sequence[str], query: str) -> dict[str, float]:
    """Keywords, best first, and the query's words to weights: 1, 1/2, 1/3, ... and 3."""
    weights = {word.casefold(): 1 / (1 + rank) for rank, word in reversed([*enumerate(found)])}
    return weights | dict.fromkeys(words(query), ASKED)


def words(text: str) -> list[str]:
    """Words of four letters or more; of scripts that write none apart, pairs of characters."""
    runs = re.findall(r"\w+", text.casefold())
    pairs = [run[n : n + 2] for run in runs if not run.isascii() for n in range(len(run) - 1)]
    return [*(run for run in runs if run.isascii() and len(run) > 3), *pairs]


def extract(text: str, budget: int, weights: Mapping[str, float], starts: Starts) -> str:
    """The best sentences that fit, in their own order, then keywords that none of them holds, while they fit."""
    parts = [part.strip() for part in SENTENCE.findall(text) if part.strip()]
    sizes = [len(starts(part)) + 1 for part in parts]
    worth = [
        _worth(part, weights, opening=not n) / size**0.5
        for n, (part, size) in enumerate(zip(parts, sizes, strict=True))
    ]
    taken: list[int] = []
    for n in sorted(range(len(parts)), key=lambda n: -worth[n]):
        if sizes[n] <= budget and worth[n] > 0:
            taken.append(n)
            budget -= sizes[n]
    said = " ".join(parts[n] for n in sorted(taken))
    return " ".join(part for part in (said, _left(text, said, budget, weights, starts)) if part)


def _worth(sentence: str, weights: Mapping[str, float], opening: bool) -> float:
    held = [weight for word, weight in weights.items() if word in sentence.casefold()]
    return sum(held) * (RELATION if len(held) > 1 else 1.0) + OPENING * opening


def _left(text: str, said: str, budget: int, weights: Mapping[str, float], starts: Starts) -> str:
    """Keywords of the text that were not said, heaviest first."""
    low, seen, listed = text.casefold(), said.casefold(), list[str]()
    for word in sorted(weights, key=lambda word: -weights[word]):
        at = low.find(word)
        shown = text[at : at + len(word)] if at >= 0 and len(low) == len(text) else word
        size = len(starts(shown)) + 1
        if at >= 0 and word not in seen and size <= budget:
            listed.append(shown)
            budget -= size
            seen += " " + shown.casefold()
    return ", ".join(listed)
