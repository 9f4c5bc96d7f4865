"""Stop strings, found in the text of sampled tokens wherever token borders fall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SLACK = 4
"""Tokens read before the longest possible match, so that a character cut in two there cannot spoil it."""


class StopStrings:
    """The stop strings of one step, and the tokenizer that turns its tokens to text."""

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self.tokenizer = tokenizer
        self.stop = stop
        # A token holds at least one byte, so that so many tokens at the end hold any match that ends there.
        self.tail = max(len(text.encode()) for text in stop) + SLACK

    def ended_by(self, ids: Sequence[int]) -> str | None:
        """The stop string that stands in the text since the last token, the earliest of several.

        With stop strings "ab" and "b" and the tokens "xa", "b", it is "ab".
        """
        tail = list(ids[-self.tail :])
        text = self.tokenizer.decode(tail, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        found = [(text.find(stop), stop) for stop in self.stop if stop in text]
        return min(found)[1] if found else None
