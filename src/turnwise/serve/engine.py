"""POST /engine/open, step, fork, compact and close: the whole engine protocol, for engines in other processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnwise.engine.wire import (
    CloseBody,
    Closed,
    CompactBody,
    Compacted,
    CompletionWire,
    EventWire,
    ForkBody,
    OpenBody,
    Opened,
    StepBody,
    heard,
)
from turnwise.serve.problem import ERRORS, STREAMED, documented
from turnwise.serve.server import Server, client_of, of
from turnwise.serve.streams import Part, stream
from turnwise.types import Completion, Event, Listener

router = APIRouter(tags=["engine"], prefix="/engine", responses=documented(*ERRORS))


@router.post("/open")
async def open_session(body: OpenBody, request: Request) -> Opened:
    """Start a conversation under a name; nothing is read or sampled yet."""
    server = of(request)
    server.check_prompt(body.prompt_ids)
    with server.admit():
        client = body.client or client_of(request)
        work = server.sessions.make(body.session, body.prompt_ids, body.sampling, body.seed, client, body.compaction)
        held = await server.attend(request, work)
    return Opened(session=body.session, tokens=len(held.live.ids))


@router.post("/step", response_model=CompletionWire, responses=STREAMED)
async def step(body: StepBody, request: Request) -> CompletionWire | Response:
    """Read tokens, then sample; a step asked for twice under one number runs once."""
    server = of(request)
    server.check_prompt(body.new_ids)
    if body.stream:
        return await stream(server, request, [lambda listen: _step(server, body, listen)], _events)
    with server.admit():
        return CompletionWire.of(await server.attend(request, _step(server, body, None)))


async def _step(server: Server, body: StepBody, listen: Listener | None) -> Completion:
    held = server.sessions.get(body.session)
    deadline = min(body.deadline_s or server.config.deadline_s, server.config.deadline_s)

    async def run() -> Completion:
        return await server.engine.step(
            held.live,
            body.new_ids,
            body.max_tokens,
            whole=body.whole,
            sampling=body.sampling,
            seed=body.seed,
            deadline_s=deadline,
            listen=listen,
        )

    with server.sessions.use(held):
        done: Completion = await held.steps.once(body.sequence, body.model_copy(update={"stream": False}), run)
    return done


async def _events(parts: AsyncIterator[Part]) -> AsyncIterator[dict[str, Any]]:
    async for part in parts:
        if part.tokens:
            yield heard(part.tokens)
        if part.whole is not None:
            yield {"completion": CompletionWire.of(part.whole).model_dump(mode="json")}


@router.post("/compact")
async def compact(body: CompactBody, request: Request) -> Compacted:
    """Compact the cache of a session now."""
    server = of(request)
    held = server.sessions.get(body.session)
    region = None if body.region is None else (body.region[0], body.region[1])

    async def run() -> Event | None:
        return await server.engine.compact(held.live, region, body.settings)

    with server.admit(), server.sessions.use(held):
        event: Event | None = await server.attend(request, held.steps.once(body.sequence, body, run))
    return Compacted(event=None if event is None else EventWire.of(event))


@router.post("/fork")
async def fork(body: ForkBody, request: Request) -> Opened:
    """A second conversation that goes on from the same tokens, under another name."""
    server = of(request)
    held = server.sessions.get(body.session)
    with server.admit(), server.sessions.use(held):
        branch = await server.attend(request, server.sessions.fork(held, body.branch, body.seed))
    return Opened(session=body.branch, tokens=len(branch.live.ids))


@router.post("/close")
async def close(body: CloseBody, request: Request) -> Closed:
    """Forget a conversation."""
    server = of(request)
    await server.sessions.drop(server.sessions.get(body.session))
    return Closed(session=body.session)
