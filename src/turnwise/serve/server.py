"""What all routes share: the engine, the renderer, limits, sessions and counters; and how a request is attended to."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request
from renderers import Renderer

from turnwise.config.serve import ServeConfig
from turnwise.errors import TooLong
from turnwise.serve.meters import Meters
from turnwise.serve.problem import RETRY, Problem, full
from turnwise.serve.sessions import Sessions
from turnwise.text.pieces import decode
from turnwise.types import Completion, Engine, Listener, Sampling

T = TypeVar("T")


@dataclass(slots=True)
class Server:
    """One engine being served."""

    engine: Engine
    renderer: Renderer
    tokenizer: Any
    name: str
    config: ServeConfig
    context: int | None = None
    """The model's longest sequence, where it is known."""
    sessions: Sessions = field(init=False)
    meters: Meters = field(init=False)
    running: int = 0
    leaving: bool = False
    """Told to stop: what runs may finish, nothing new begins."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """The time to finish is over."""

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.engine, self.config.max_sessions, self.config.session_ttl_s)
        self.meters = Meters(self)

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a request as running, or refuse it."""
        if self.leaving:
            raise Problem(503, "a server that is stopping", "one that serves", "Ask another one.", headers=RETRY)
        if self.running >= self.config.max_requests:
            raise full(f"{self.running} requests being answered", f"fewer than {self.config.max_requests}")
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    async def attend(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """Do the work of a request; stop it when its client goes away or the server's time is over."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(request))
        over = asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait({task, gone, over}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if over.done():
                raise Problem(503, "a server that stopped", "a shorter reply", "Ask another one.", headers=RETRY)
            raise Problem(499, "a client that went away", "one that waits", "Ask again.")
        finally:
            for waiting in (task, gone, over):
                waiting.cancel()
            await asyncio.wait({task, gone, over})

    def check_model(self, asked: str | None) -> None:
        if asked not in (None, "", self.name):
            raise Problem(
                404,
                f"model {asked[:80]!r}" if asked else "no model",
                repr(self.name),
                "GET /v1/models lists what is served.",
                param="model",
            )

    def check_prompt(self, ids: Sequence[int]) -> None:
        if len(ids) > self.config.max_prompt_tokens:
            raise TooLong(f"found {len(ids)} tokens of prompt; expected at most {self.config.max_prompt_tokens}")

    def text(self, ids: Sequence[int]) -> str:
        return decode(self.tokenizer, ids)

    async def complete(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        seed: int,
        client: str,
        session: str | None = None,
        listen: Listener | None = None,
    ) -> Completion:
        """One completion of a whole prompt: in the session of that name, or in one that is closed at once."""
        deadline = self.config.deadline_s
        if session is not None:
            async with self.sessions.whole(session, ids, sampling, seed, client) as held:
                return await self.engine.step(
                    held, ids, whole=True, sampling=sampling, seed=seed, deadline_s=deadline, listen=listen
                )
        opened = await self.engine.open(ids, sampling, seed=seed, client=client)
        try:
            return await self.engine.step(opened, [], deadline_s=deadline, listen=listen)
        finally:
            await self.engine.close(opened)


def seed_of(given: int | None) -> int:
    """The seed of a request: its own, or one that no other request has."""
    return secrets.randbits(62) if given is None else given


async def _gone(request: Request) -> None:
    """Until the client hangs up; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def of(request: Request) -> Server:
    """The server behind a route."""
    server: Server = request.app.state.server
    return server


def client_of(request: Request) -> str:
    """Whom limits count a request against: the name in X-Client-ID, else the address it came from."""
    named = request.headers.get("x-client-id", "")
    return named[:128] or (request.client.host if request.client else "")
