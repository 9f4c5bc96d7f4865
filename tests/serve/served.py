"""An app on a real socket of this machine, in the event loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn

from turnwise.config.serve import ServeConfig
from turnwise.engine import LocalEngine
from turnwise.serve import make
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
    engine = engine or LocalEngine(policy)
    renderer = choose(policy.tokenizer, "auto", NAME)
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
async def client(engine: Engine | None = None, policy: Any = None, **limits: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that runs as long as the block; its app is `client.app`."""
    app = app_over(engine, policy, **limits)
    async with listening(app) as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        http.app = app
        yield http
