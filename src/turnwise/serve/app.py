"""The app: every route over one engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from renderers import Renderer

from turnwise import __version__
from turnwise.config.serve import ServeConfig
from turnwise.serve import admin, chat, compact, engine, generate, house, problem, rsa, text
from turnwise.serve.door import Door
from turnwise.serve.server import Server
from turnwise.types import Engine

ROUTES = (generate, chat, text, compact, rsa, engine, admin, house)
SWEEP_S = 1.0


def make(
    engine: Engine,
    renderer: Renderer,
    tokenizer: Any,
    name: str,
    config: ServeConfig | None = None,
    context: int | None = None,
) -> FastAPI:
    """An app that serves this engine under a name; `context` is the model's longest sequence."""
    server = Server(engine, renderer, tokenizer, name, config or ServeConfig(), context)
    app = FastAPI(
        title="Turnwise",
        version=__version__,
        summary="Token-exact sampling, sessions and compaction of their caches.",
        lifespan=_life,
        redoc_url=None,
        docs_url=None,
    )
    app.state.server = server
    app.add_middleware(Door, server=server)
    problem.install(app)
    for routes in ROUTES:
        app.include_router(routes.router)
    return app


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    """Idle sessions are closed while the server runs, all of them when it ends."""
    server: Server = app.state.server
    sweeping = asyncio.create_task(_sweep(server))
    try:
        yield
    finally:
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
        await server.sessions.close()


async def _sweep(server: Server) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        await server.sessions.sweep()
