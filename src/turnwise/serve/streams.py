"""Completions as they are sampled: engine steps to tokens in batches, and those to server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnwise.errors import TurnwiseError
from turnwise.serve.problem import Problem, explain
from turnwise.serve.server import Server
from turnwise.types import Completion, Listener, Sampled

Start = Callable[[Listener], Coroutine[Any, Any, Completion]]
"""Begins a step that tells a listener of its tokens."""


@dataclass(frozen=True, slots=True)
class Part:
    """New tokens of one of several completions, and the whole of it when it is done."""

    index: int
    tokens: list[Sampled]
    whole: Completion | None = None


async def parts(starts: Sequence[Start]) -> AsyncGenerator[Part]:
    """Run the steps together and give their tokens as they come, those of one forward pass at once.

    Tokens that came while nobody asked wait here; a step never waits for its reader. Closing this cancels the steps.
    """
    heard: list[list[Sampled]] = [[] for _ in starts]
    news = asyncio.Event()

    def listener(index: int) -> Listener:
        def hear(token: Sampled) -> None:
            heard[index].append(token)
            news.set()

        return hear

    tasks = [asyncio.create_task(start(listener(n))) for n, start in enumerate(starts)]
    for task in tasks:
        task.add_done_callback(lambda _: news.set())
    left = set(range(len(tasks)))
    try:
        while left:
            await news.wait()
            news.clear()
            for index in sorted(left):
                done = tasks[index].done()
                tokens, heard[index] = heard[index], []
                whole = tasks[index].result() if done else None
                if whole is not None:
                    left.discard(index)
                if tokens or whole is not None:
                    yield Part(index, tokens, whole)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Events(Response):
    """Server-sent events from an iterator of JSON objects; `close` runs in any case, even if no event was sent.

    The iterator is stopped when the reader goes away, or takes nothing for `stall_s`, or the server's time is over.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[dict[str, Any]],
        close: Callable[[], Coroutine[Any, Any, None]],
        stall_s: float,
        over: asyncio.Event,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self.events = events
        self.close = close
        self.stall_s = stall_s
        self.over = over
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        sending = asyncio.create_task(self._send(send))
        over = asyncio.create_task(self.over.wait())
        waited: list[asyncio.Task[Any]] = [sending, over, asyncio.create_task(_gone(receive))]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if over.done() and not sending.done():
                sending.cancel()
                await asyncio.wait({sending})
                await self._last(send, Problem(503, "a server that stopped", "a shorter reply", "Ask another one."))
        finally:
            for task in waited:
                task.cancel()
            await asyncio.gather(*waited, return_exceptions=True)
            await self.close()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await self._put(send, start)
        try:
            async for event in self.events:
                await self._put(send, _body(event))
        except (TurnwiseError, Problem) as error:
            await self._last(send, error if isinstance(error, Problem) else explain(error))
        else:
            await self._last(send)

    async def _last(self, send: Send, problem: Problem | None = None) -> None:
        """The end of a stream; an error that comes after the status was sent is an event of its own."""
        if problem is not None:
            await self._put(send, _body(problem.body))
        await self._put(send, {"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _put(self, send: Send, message: dict[str, Any]) -> None:
        async with asyncio.timeout(self.stall_s):
            await send(message)


async def stream(
    server: Server,
    request: Request,
    starts: Sequence[Start],
    tell: Callable[[AsyncIterator[Part]], AsyncIterator[dict[str, Any]]],
) -> Events:
    """Begin the steps and answer with what `tell` makes of their parts.

    The first part is awaited here, so that what is refused at once has its own status.
    """
    began = time.perf_counter()
    with ExitStack() as admitted:
        admitted.enter_context(server.admit())
        rest = parts(starts)
        first = await server.attend(request, _first(rest))
        staying = admitted.pop_all()
    server.meters.first.observe(time.perf_counter() - began)

    async def all_parts() -> AsyncIterator[Part]:
        yield first
        async for part in rest:
            yield part

    async def close() -> None:
        await rest.aclose()
        staying.close()

    return Events(tell(all_parts()), close, server.config.stall_s, server.ended)


async def _first(rest: AsyncGenerator[Part]) -> Part:
    return await anext(rest)


def _body(event: dict[str, Any]) -> dict[str, Any]:
    return {"type": "http.response.body", "body": f"data: {json.dumps(event)}\n\n".encode(), "more_body": True}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
