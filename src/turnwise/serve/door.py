"""Before any route: bodies are read up to a limit, and every answer is counted with its status and time."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise.serve.problem import Problem, answer
from turnwise.serve.server import Server


class Door:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self.app = app
        self.server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 499

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            body = await self._read(scope, receive)
            if body is not None:
                await self.app(scope, _replay(body, receive), told)
        except Problem as problem:
            await answer(problem)(scope, receive, told)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.server.meters.requests.labels(route, str(status)).inc()
            self.server.meters.seconds.labels(route).observe(time.perf_counter() - began)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client went away before it was sent."""
        most = self.server.config.max_body_bytes
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > most:
            raise _too_large(f"{int(length)} bytes", most)
        body = bytearray()
        while True:
            try:
                async with asyncio.timeout(self.server.config.stall_s):
                    message = await receive()
            except TimeoutError:
                raise Problem(
                    408, "a body that stopped coming", "all of it", "Send it faster.", headers=CLOSE
                ) from None
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > most:
                raise _too_large(f"over {most} bytes", most)
            if not message.get("more_body", False):
                return bytes(body)


CLOSE = {"Connection": "close"}


def _too_large(found: str, most: int) -> Problem:
    return Problem(413, f"a body of {found}", f"at most {most} bytes", "Send fewer tokens.", headers=CLOSE)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, then goes on with the real one."""
    read = False

    async def again() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
