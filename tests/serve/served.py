"""An app on a real socket of this machine, in the event loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn

from turnwise.config.serve import ServeConfig
from turnwise.engine import LocalEngine
from turnwise.serve import make
from turnwise.serve.run import writer
from turnwise.testing import tiny_model
from turnwise.text import choose
from turnwise.types import Engine

ADMIN = "secret"
NAME = "tiny"


class Quiet(uvicorn.Server):
    """Leaves signals to pytest."""

    @contextlib.contextmanager
    def capture_signals(self):
        yield


def app_over(engine: Engine | None = None, policy: Any = None, **limits: Any) -> Any:
    policy = policy or tiny_model()
    renderer = choose(policy.tokenizer, "auto", NAME)
    engine = engine or LocalEngine(policy, write_notice=writer(renderer))
    config = ServeConfig(admin_token=ADMIN, **limits)
    return make(engine, renderer, policy.tokenizer, NAME, config, policy.context)


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """The URL of a server that runs as long as the block."""
    server = Quiet(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=5))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def client(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server on a socket, that runs as long as the block."""
    async with listening(app) as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        yield http


def direct(app: Any) -> httpx.AsyncClient:
    """A client that calls the app without a socket; a failure in the app is an answer, as on a socket."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(base_url="http://server", transport=transport, timeout=30)


def asks(app: Any, *requests: dict[str, Any]) -> list[httpx.Response]:
    """Requests to one app, one after the other; each names path, and json, headers, content or method as needed."""

    async def asked() -> list[httpx.Response]:
        async with direct(app) as http:
            return [await http.request(**{"method": "POST", "url": r.pop("path"), **r}) for r in map(dict, requests)]

    return asyncio.run(asked())


def ask(path: str, body: Any = None, app: Any = None, method: str = "POST", **more: Any) -> httpx.Response:
    """One request to an app of its own, or to the one given."""
    return asks(app or app_over(), {"path": path, "json": body, "method": method, **more})[0]


def events(text: str) -> list[dict[str, Any]]:
    """The JSON of server-sent events, the last of which says that it is the last."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
