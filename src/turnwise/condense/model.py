"""A model behind an engine writes the summary: the policy itself, whose tokens are kept as a turn, or a frozen one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from renderers import Renderer

from turnwise.condense.ask import AGENT, ask, room
from turnwise.condense.chunk import Starts
from turnwise.condense.patience import patient
from turnwise.condense.written import Request, Written
from turnwise.errors import TooLong
from turnwise.text import Dialogue
from turnwise.text.pieces import tokenizer_of
from turnwise.types import Completion, Engine, Sampling, Turn, TurnStop


class Model:
    """Implements Condenser. `sampled` says that the engine runs the policy: its summaries then come with their turn."""

    def __init__(
        self, engine: Engine, renderer: Renderer, starts: Starts, sampling: Sampling, reasoning: int, sampled: bool
    ) -> None:
        self.engine = engine
        self.renderer = renderer
        self.starts = starts
        self.sampling = sampling
        self.reasoning = reasoning
        self.sampled = sampled

    async def shorten(self, request: Request) -> Written:
        dialogue = Dialogue(self.renderer)
        dialogue.add(ask(request))
        prompt = dialogue.prompt_ids.tolist()
        try:
            done = await patient(lambda: self._complete(prompt, request))
        except TooLong:
            return Written(None, why="too_long")
        turn = self._turn(dialogue, done) if self.sampled else None
        text = self._plain(str(dialogue.reply(done.ids.tolist()).get("content") or ""))
        cut = done.stop_reason is not TurnStop.STOP
        return Written(text or None, turn, "cut" if cut else "" if text else "empty")

    def _turn(self, dialogue: Dialogue, done: Completion) -> Turn:
        turn = Turn.of(dialogue.prompt_ids, done, self.sampling.temperature, dialogue.attribution)
        return replace(turn, agent=AGENT)

    def _plain(self, text: str) -> str:
        """Without marks such as <|im_end|>, which a tokenizer would read as marks again."""
        marks = getattr(tokenizer_of(self.renderer), "all_special_tokens", ())
        for mark in marks:
            text = text.replace(mark, "")
        return text.strip()

    async def _complete(self, prompt: Sequence[int], request: Request) -> Completion:
        session = await self.engine.open(prompt, self.sampling, seed=request.seed)
        try:
            return await self.engine.step(session, [], room(request.budget, self.reasoning))
        finally:
            await self.engine.close(session)
