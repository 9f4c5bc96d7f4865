"""In: messages. Out: what an OpenAI-compatible chat server replies; what may succeed later is asked for again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from turnwise.errors import EngineError, RenderError
from turnwise.text.content import text_of
from turnwise.types import Message

AGAIN_S = 0.5
"""How long to wait before the second try; each further one twice as long."""
LATER = {408, 409, 429, 500, 502, 503, 504}
"""Answers after which the same request may succeed."""


class Place(Protocol):
    """What a config says about a server."""

    @property
    def url(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def key_env(self) -> str: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def retries(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """One assistant message, its content as text, and whether it ran into `max_tokens`."""

    message: Message
    cut: bool


class Endpoint:
    """A server that is asked for one assistant message at a time."""

    def __init__(self, place: Place, again_s: float = AGAIN_S) -> None:
        self.place = place
        self.again_s = again_s
        self._ssl = httpx.create_ssl_context()

    async def ask(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int, **more: Any
    ) -> Reply:
        """The next message; EngineError where the server gives none. `more` goes into the request as it is."""
        drawn = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed % 2**31}
        body = {"model": self.place.name, "messages": list(messages), **drawn, **more}
        problem = ""
        async with self._client() as client:
            for attempt in range(self.place.retries + 1):
                if attempt:
                    await asyncio.sleep(self.again_s * 2 ** (attempt - 1))
                try:
                    answer = await client.post(f"{self.place.url.rstrip('/')}/chat/completions", json=body)
                    if answer.status_code == 200:
                        return _read(answer)
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    problem = repr(error)
                    continue
                except EngineError as error:
                    problem = str(error)
                    continue
                problem = f"status {answer.status_code}: {answer.text[:200]}"
                if answer.status_code not in LATER:
                    break
        raise EngineError(f"{self.place.url} gives no answer: {problem}")

    def _client(self) -> httpx.AsyncClient:
        key = os.environ.get(self.place.key_env, "") if self.place.key_env else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(verify=self._ssl, timeout=self.place.timeout_s, headers=headers)


def _read(answer: httpx.Response) -> Reply:
    """The first choice's message, in the shape that environments are given."""
    try:
        choice = answer.json()["choices"][0]
        said: Mapping[str, Any] = choice["message"]
        kept = {name: said[name] for name in ("reasoning_content", "tool_calls") if said.get(name)}
        message: Message = {"role": "assistant", "content": text_of(said), **kept}
        return Reply(message, choice.get("finish_reason") == "length")
    except (ValueError, LookupError, TypeError, AttributeError, RenderError) as error:
        raise EngineError(f"found an answer that is no chat completion ({error!r}): {answer.text[:200]}") from error
