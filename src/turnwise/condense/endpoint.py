"""A summary from any OpenAI-compatible server. What goes wrong there is tried again, and then it is data."""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Any

import httpx

from turnwise.condense.ask import ask, room
from turnwise.condense.chunk import Starts
from turnwise.condense.written import Request, Written
from turnwise.config.condense import WriterConfig
from turnwise.errors import RenderError
from turnwise.text.content import text_of
from turnwise.text.parse import reason

AGAIN_S = 0.2
"""How long to wait before the second try; each further one twice as long."""


class Endpoint:
    """Implements Condenser. An answer that ran into its limit is asked for once more with twice the room: how many
    tokens a server's model needs is only known exactly where its tokenizer is."""

    def __init__(self, config: WriterConfig, starts: Starts, again_s: float = AGAIN_S) -> None:
        self.config = config
        self.starts = starts
        self.again_s = again_s
        self._ssl = ssl.create_default_context()
        self._places = asyncio.Semaphore(config.parallel)

    async def shorten(self, request: Request) -> Written:
        most = room(request.budget, self.config.reasoning_tokens)
        answer = await self._asked(request, most)
        if answer is not None and answer[1]:
            answer = await self._asked(request, 2 * most) or answer
        if answer is None:
            return Written(None, why="failed")
        text, cut = answer
        return Written(text or None, why="cut" if cut else "" if text else "empty")

    async def _asked(self, request: Request, most: int) -> tuple[str, bool] | None:
        """The text without its reasoning, and whether it was cut; None where the server gives none."""
        for attempt in range(self.config.retries + 1):
            try:
                return _read(await self._post(request, most))
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError, RenderError):
                if attempt < self.config.retries:
                    await asyncio.sleep(self.again_s * 2**attempt)
        return None

    async def _post(self, request: Request, most: int) -> Any:
        body = {
            "model": self.config.name,
            "messages": ask(request),
            "max_tokens": most,
            "temperature": self.config.temperature,
            "seed": request.seed % 2**31,
        }
        key = os.environ.get(self.config.key_env, "") if self.config.key_env else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self._places, httpx.AsyncClient(verify=self._ssl, timeout=self.config.timeout_s) as client:
            url = f"{self.config.url.rstrip('/')}/chat/completions"
            answer = await client.post(url, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()


def _read(answer: Any) -> tuple[str, bool]:
    """The first choice: a text or parts, with or without a think block; one that was never closed says nothing."""
    choice = answer["choices"][0]
    whole = text_of({"content": choice["message"]["content"]})
    _, start, _ = reason(whole)
    return whole[start:].strip(), choice.get("finish_reason") == "length"
