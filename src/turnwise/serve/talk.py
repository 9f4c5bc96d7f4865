"""Whom a terminal chat talks to: a model in this process, or a server with OpenAI's chat route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import httpx

from turnwise.config.chat import ChatConfig
from turnwise.config.serve import ServeConfig
from turnwise.engine import LocalEngine
from turnwise.engine.remote import refused
from turnwise.errors import EngineDown
from turnwise.serve.ask import render
from turnwise.serve.reply import Reply
from turnwise.serve.run import model
from turnwise.serve.server import Server
from turnwise.serve.streams import parts
from turnwise.text import choose
from turnwise.types import Completion, Listener, Sampling

Talk = Sequence[dict[str, Any]]


class Speaker(Protocol):
    """Answers conversations, piece by piece."""

    def say(self, talk: Talk) -> AsyncIterator[str]: ...

    async def close(self) -> None: ...


def speaker(target: str, config: ChatConfig) -> Speaker:
    """A URL is a server, anything else a model."""
    if target.startswith(("http://", "https://")):
        return Remote(target.rstrip("/").removesuffix("/v1"), config)
    return Local(target, config)


class Local:
    """A model in this process; one session goes on from turn to turn."""

    def __init__(self, target: str, config: ChatConfig) -> None:
        served = ServeConfig(model=target, dtype=config.dtype, device=config.device)
        policy = model(served)
        renderer = choose(policy.tokenizer, config.renderer, target)
        self.server = Server(LocalEngine(policy), renderer, policy.tokenizer, target, served, policy.context)
        stops = tuple(renderer.get_stop_token_ids())
        self.how = Sampling(config.temperature, config.max_tokens, config.top_p, stop_ids=stops)
        self.seed = config.seed

    async def say(self, talk: Talk) -> AsyncIterator[str]:
        prompt = render(self.server, list(talk), None)
        reply = Reply(self.server, prompt)
        seed = self.seed + len(talk)

        async def step(listen: Listener) -> Completion:
            return await self.server.complete(prompt, self.how, seed, "chat", "chat", listen)

        async with aclosing(parts([step])) as heard:
            async for part in heard:
                yield reply.grow([token.id for token in part.tokens]).get("content", "")
                if part.whole is not None:
                    yield reply.finish(part.whole.stopped_by)[1].get("content", "")

    async def close(self) -> None:
        await self.server.sessions.close()


class Remote:
    """A server's chat route, streamed."""

    def __init__(self, url: str, config: ChatConfig) -> None:
        self.url = url
        self.config = config
        self.name = config.name
        self.client = httpx.AsyncClient(timeout=httpx.Timeout(600.0, connect=10.0))

    async def say(self, talk: Talk) -> AsyncIterator[str]:
        try:
            self.name = self.name or await self._first()
            async with self.client.stream("POST", f"{self.url}/v1/chat/completions", json=self._body(talk)) as response:
                if response.status_code != 200:
                    raise refused(response.status_code, (await response.aread()).decode())
                async for line in response.aiter_lines():
                    yield _piece(line)
        except httpx.HTTPError as error:
            raise EngineDown(f"found {self.url} not answering ({error}); expected a server there") from error

    async def _first(self) -> str:
        listed = (await self.client.get(f"{self.url}/v1/models")).json()
        return str(listed["data"][0]["id"])

    def _body(self, talk: Talk) -> dict[str, Any]:
        config = self.config
        drawn = {"temperature": config.temperature, "top_p": config.top_p, "max_tokens": config.max_tokens}
        return {"model": self.name, "messages": list(talk), "stream": True, "seed": config.seed + len(talk), **drawn}

    async def close(self) -> None:
        await self.client.aclose()


def _piece(line: str) -> str:
    """The text of one line of a stream; "" where it has none."""
    if not line.startswith("data: ") or line == "data: [DONE]":
        return ""
    event = json.loads(line[6:])
    if "error" in event:
        raise refused(int(event["error"].get("code") or 500), line[6:])
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
