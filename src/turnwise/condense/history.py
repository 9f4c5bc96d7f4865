"""One episode's history, rewritten when it is due: eligible messages are cut into pieces, pieces give way to blocks.

A piece that did not get shorter is not tried again, and a block is never condensed, so that rewriting twice is
rewriting once.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.condense.blocks import EXTRACT, TOOL, Blocks
from turnwise.condense.chunk import Starts, chunks
from turnwise.condense.draft import Chunk, Draft, assembled, by_text, by_turns
from turnwise.condense.shared import Shared
from turnwise.condense.written import Condenser, Request, Written
from turnwise.config.condense import CondenseConfig
from turnwise.text.content import text_of
from turnwise.types import Message, Tool, Turn

COUNTS = (
    "condensations",
    "chunks",
    "tokens_before",
    "tokens_after",
    "opened",
    "shared",
    "over",
    "summaries",
    "summary_tokens",
)
"""What every episode that may condense counts."""
REASONS = ("cut", "not_shorter", "empty", "too_long", "failed")
"""Pieces whose text was cut, and those that stayed, by reason."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The messages from here on, None where nothing got shorter, and the turns in which the policy wrote summaries."""

    messages: list[Message] | None
    turns: list[Turn]


class History:
    """Decides, rewrites and counts for one episode.

    `starts` are the policy's tokens: it is the one that reads the result. `seed` gives each piece its own.
    """

    def __init__(
        self, config: CondenseConfig, condenser: Condenser, starts: Starts, shared: Shared, seed: Callable[[str], int]
    ) -> None:
        self.config = config
        self.condenser = condenser
        self.starts = starts
        self.shared = shared
        self.seed = seed
        self.blocks = Blocks()
        self.counts: Counter[str] = Counter(dict.fromkeys((*COUNTS, *REASONS), 0))
        self._skip = [re.compile(pattern) for pattern in config.skip]
        self._refused: set[str] = set()
        self._kept: dict[int, Turn] = {}

    @property
    def tools(self) -> list[Tool]:
        """What the agent is offered beside the environment's tools."""
        return [TOOL] if self.config.extract else []

    @property
    def answers(self) -> dict[str, Callable[[dict[str, Any]], str]]:
        """What answers them, by name."""
        return {EXTRACT: self._extract} if self.config.extract else {}

    def due(self, prompt_tokens: int, turns: int) -> bool:
        """Whether to condense before the next reply; `turns` were played."""
        config = self.config
        if config.max_context_tokens and prompt_tokens > config.max_context_tokens:
            return True
        if not turns:
            return bool(config.max_input_tokens) and prompt_tokens > config.max_input_tokens
        return bool(config.every_turns) and turns % config.every_turns == 0

    def settle(self, prompt_tokens: int) -> None:
        """Count a prompt that is too long even so."""
        self.counts["over"] += bool(self.config.max_context_tokens) and prompt_tokens > self.config.max_context_tokens

    async def rewrite(self, messages: Sequence[Message], query: str) -> Rewritten:
        """The history with what is eligible condensed; turns are there even where their summaries were no good."""
        drafts = self._drafts(messages)
        asked = [chunk for draft in drafts for chunk in draft.chunks if self._wanted(chunk)]
        answers = await asyncio.gather(*(self._ask(chunk, query) for chunk in asked))
        taken = [self._take(chunk, written) for chunk, (written, _) in zip(asked, answers, strict=True)]
        self.counts["shared"] += sum(known for _, known in answers)
        self.counts["condensations"] += any(taken)
        now = assembled(drafts)
        gone = [message for draft in drafts if draft.parts and not draft.whole for message in draft.drawn()]
        self.blocks.settled.update(map(text_of, gone))
        self.blocks.settled.update(text for text in map(text_of, now) if self.blocks.within(text))
        return Rewritten(now if any(taken) else None, self._turns([written for written, _ in answers]))

    def _drafts(self, messages: Sequence[Message]) -> list[Draft]:
        config = self.config

        def cut(text: str) -> list[str]:
            return chunks(text, config.chunk, self.condenser.starts)

        if config.chunk.type == "turns":
            return by_turns(messages, config.protect_turns, config.chunk.turns, self.blocks, cut)
        return by_text(messages, config.protect_turns, config.roles, self.blocks, cut)

    def _wanted(self, chunk: Chunk) -> bool:
        """Whether a piece is worth asking about: long enough, not to be skipped, not tried in vain."""
        if (
            chunk.text in self._refused
            or not chunk.text.strip()
            or len(self.starts(chunk.text)) < self.config.min_tokens
        ):
            return False
        return not any(pattern.search(chunk.text) for pattern in self._skip)

    async def _ask(self, chunk: Chunk, query: str) -> tuple[Written, bool]:
        held = len(self.condenser.starts(chunk.text))
        budget = max(self.config.min_tokens, math.ceil(self.config.ratio * held))
        request = Request(chunk.text.strip(), budget, query, self.seed(chunk.text))
        return await self.shared.get(request, lambda: self.condenser.shorten(request))

    def _take(self, chunk: Chunk, written: Written) -> bool:
        """Put a block in the place of the piece if that is shorter for the policy; count what came of it."""
        self.counts["chunks"] += 1
        if written.why:
            self.counts[written.why] += 1
        before = len(self.starts(chunk.text))
        after = before if written.text is None else len(self.starts(self.blocks.draw(written.text)))
        if written.text is None or after >= before:
            self.counts["not_shorter"] += written.text is not None
            self._refused.add(chunk.text)
            return False
        chunk.shown = self.blocks.add(chunk.text, written.text)
        self.counts["tokens_before"] += before
        self.counts["tokens_after"] += after
        return True

    def _turns(self, answers: Sequence[Written]) -> list[Turn]:
        """The turns of answers, each once an episode, however often the piece stood there."""
        found = {id(w.turn): w.turn for w in answers if w.turn is not None}
        new = [turn for key, turn in found.items() if key not in self._kept]
        self._kept |= found
        self.counts["summaries"] += len(new)
        self.counts["summary_tokens"] += sum(len(turn.completion_ids) for turn in new)
        return new

    def _extract(self, given: dict[str, Any]) -> str:
        opened = len(self.blocks.opened)
        text = self.blocks.extract(given)
        self.counts["opened"] += len(self.blocks.opened) - opened
        return text
