"""A summary from any OpenAI-compatible server. What goes wrong there is data."""

from __future__ import annotations

import asyncio

from turnwise.condense.ask import ask, room
from turnwise.condense.chunk import Starts
from turnwise.condense.written import Request, Written
from turnwise.config.condense import WriterConfig
from turnwise.endpoint import AGAIN_S, Endpoint, Reply
from turnwise.errors import EngineError
from turnwise.text.parse import reason


class EndpointWriter:
    """Implements Condenser. An answer that ran into its limit is asked for once more with twice the room: how many
    tokens a server's model needs is only known exactly where its tokenizer is."""

    def __init__(self, config: WriterConfig, starts: Starts, again_s: float = AGAIN_S) -> None:
        self.config = config
        self.starts = starts
        self._endpoint = Endpoint(config, again_s)
        self._places = asyncio.Semaphore(config.parallel)

    async def shorten(self, request: Request) -> Written:
        most = room(request.budget, self.config.reasoning_tokens)
        reply = await self._asked(request, most)
        if reply is not None and reply.cut:
            reply = await self._asked(request, 2 * most) or reply
        if reply is None:
            return Written(None, why="failed")
        text = _text(reply)
        return Written(text or None, why="cut" if reply.cut else "" if text else "empty")

    async def _asked(self, request: Request, most: int) -> Reply | None:
        """None where the server gives no reply."""
        heat = self.config.temperature
        try:
            async with self._places:
                return await self._endpoint.ask(ask(request), max_tokens=most, temperature=heat, seed=request.seed)
        except EngineError:
            return None


def _text(reply: Reply) -> str:
    """What was said, with or without a think block; one that was never closed says nothing."""
    whole = str(reply.message["content"])
    _, start, _ = reason(whole)
    return whole[start:].strip()
