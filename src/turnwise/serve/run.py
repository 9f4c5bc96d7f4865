"""A config to a process that serves: load the model, listen, and stop in an orderly way.

SIGTERM or Ctrl-C: nothing new begins, what runs has `grace_s` to finish, then it is ended with 503; exit code 0
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI
from renderers import Renderer

from turnwise.config.run import TinyConfig
from turnwise.config.serve import ServeConfig
from turnwise.engine import LocalEngine
from turnwise.engine.limits import Limits
from turnwise.errors import ConfigError, RenderError
from turnwise.model import Policy, load, tiny
from turnwise.serve.app import make
from turnwise.serve.server import Server
from turnwise.text import choose
from turnwise.text.notice import notice_ids

SETTLE_S = 2.0
"""Time for the answers of ended requests to leave."""


def run(config: ServeConfig) -> int:
    """Serve until told to stop."""
    listening = listen(config)
    if config.threads:
        torch.set_num_threads(config.threads)
    policy = model(config)
    name = config.name or (Path(config.model).name if Path(config.model).is_dir() else config.model)
    renderer = choose(policy.tokenizer, config.renderer, config.model)
    engine = LocalEngine(policy, limits(config), writer(renderer))
    app = make(engine, renderer, policy.tokenizer, name, config, policy.context)
    grace = int(config.grace_s + SETTLE_S) + 1
    settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=grace, backlog=2048)
    host, port = listening.getsockname()[:2]
    print(f"turnwise serve: {name} at http://{host}:{port}", flush=True)
    asyncio.run(Process(settings, app).serve([listening]))
    server: Server = app.state.server
    print(f"turnwise serve: stopped after {server.meters.total():.0f} requests", flush=True)
    return 0


def limits(config: ServeConfig) -> Limits:
    """Of the engine; it computes in a thread, so that requests are answered meanwhile."""
    return Limits(
        max_cache_bytes=config.max_cache_mb * 2**20 or None,
        max_client_sessions=config.max_client_sessions or None,
        max_running=config.max_running,
        threaded=True,
    )


def writer(renderer: Renderer) -> Callable[[str], Sequence[int]] | None:
    """Budget messages to tokens; None where the template cannot go on behind a reply, so that they are refused."""
    try:
        notice_ids(renderer, "?")
    except (ConfigError, RenderError):
        return None
    return partial(notice_ids, renderer)


def model(config: ServeConfig) -> Policy:
    """The policy to serve."""
    if config.model == "tiny":
        return tiny.build([], TinyConfig(), config.seed, config.device, config.dtype)
    return load(config.model, config.dtype, config.device)


def listen(config: ServeConfig) -> socket.socket:
    """Take the port before the model is loaded, so that a taken one is said at once."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
    except (OSError, UnicodeError) as error:
        listening.close()
        raise ConfigError(
            f"found host {config.host!r}, port {config.port}, which cannot be listened on ({error}); expected a free "
            "port of this machine: choose another --port, or 0 for any"
        ) from error
    return listening


class Process(uvicorn.Server):
    """Takes signals itself, so that stopping is no failure and running requests are told."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self.server: Server = app.state.server

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._leave, sign)
        yield

    def _leave(self, sign: signal.Signals) -> None:
        """The first signal lets what runs finish for a while; a second Ctrl-C does not wait."""
        if self.should_exit and sign is signal.SIGINT:
            self.server.ended.set()
            self.force_exit = True
        self.should_exit = self.server.leaving = True
        asyncio.get_running_loop().call_later(self.server.config.grace_s, self.server.ended.set)
