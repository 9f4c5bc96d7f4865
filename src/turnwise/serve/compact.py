"""POST /compact_generate and /compact_session/create and step; GET and DELETE /compact_session/{id}."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from turnwise.engine.wire import Ids, Name, Whole
from turnwise.serve.bodies import Body
from turnwise.serve.compacted import CompactAnswer, SessionAnswer, answer
from turnwise.serve.compaction import CreateBody, GenerateBody, Positive, fit, sampling
from turnwise.serve.problem import ERRORS, documented
from turnwise.serve.server import Server, client_of, of, seed_of
from turnwise.serve.sessions import Held
from turnwise.types import Completion

router = APIRouter(tags=["compaction"], responses=documented(*ERRORS))
Place = Annotated[Name, Path(description="A session that is open.")]


class StepBody(Body):
    """What a conversation goes on with. A step sent twice under one `sequence` (0, 1, 2, ...) runs once."""

    session_id: Name
    new_token_ids: Ids = []
    max_response_tokens: Positive | None = None
    """Longest response; null is what the session was created with."""
    trigger_compact: bool = False
    """Compact the cache before the new tokens are read."""
    sequence: Annotated[int, Field(ge=0, lt=2**31), Whole] | None = None


class SessionState(BaseModel):
    """A session, and what its cache holds."""

    session_id: str
    current_seq_len: int
    logical_len: int
    turns: int
    compactions: int
    max_kv_len: int | None
    running: bool


@router.post("/compact_generate")
async def compact_generate(body: GenerateBody, request: Request) -> CompactAnswer:
    """Answer one prompt within a bounded cache."""
    server, began = of(request), time.perf_counter()
    server.check_prompt(body.prompt_ids)
    fit(body)
    how = sampling(body, server, body.temperature, body.room)

    async def work() -> Completion:
        session = await server.engine.open(
            body.prompt_ids, how, seed=seed_of(body.seed), client=client_of(request), compaction=body.compaction()
        )
        try:
            return await server.engine.step(session, [], deadline_s=server.config.deadline_s)
        finally:
            await server.engine.close(session)

    with server.admit():
        said = await server.attend(request, work())
    seconds = time.perf_counter() - began
    return CompactAnswer(**answer(server, len(body.prompt_ids), said, seconds, len(said.events)))


@router.post("/compact_session/create")
async def create(body: CreateBody, request: Request) -> SessionAnswer:
    """Open a conversation and sample its first response."""
    server = of(request)
    server.check_prompt(body.prompt_ids)
    fit(body)
    how = sampling(body, server, body.temperature, body.max_response_tokens)
    name = body.session_id or uuid.uuid4().hex

    async def work() -> SessionAnswer:
        held = await server.sessions.make(
            name, body.prompt_ids, how, seed_of(body.seed), client_of(request), body.compaction()
        )
        held.facts.update(events=0, freed=0, turns=0, max_kv_len=body.max_kv_len)
        try:
            return await _respond(server, held, [], None)
        except BaseException:
            await server.sessions.drop(held)
            raise

    with server.admit():
        first = await server.attend(request, work())
    return first.model_copy(update={"warnings": body.warnings})


@router.post("/compact_session/step")
async def step(body: StepBody, request: Request) -> SessionAnswer:
    """Read new tokens and sample a response; steps of one session run in the order they came."""
    server = of(request)
    server.check_prompt(body.new_token_ids)
    held = server.sessions.get(body.session_id)

    async def run() -> SessionAnswer:
        if body.trigger_compact:
            await server.engine.compact(held.live)
        return await _respond(server, held, body.new_token_ids, body.max_response_tokens)

    with server.admit(), server.sessions.use(held):
        done: SessionAnswer = await server.attend(request, held.steps.once(body.sequence, body, run))
    return done


@router.get("/compact_session/{session_id}")
async def state(session_id: Place, request: Request) -> SessionState:
    """How long a session is, and its cache."""
    server = of(request)
    held = server.sessions.get(session_id)
    logical, facts = len(held.live.ids), held.facts
    return SessionState(
        session_id=session_id,
        current_seq_len=logical - facts.get("freed", 0),
        logical_len=logical,
        turns=facts.get("turns", 0),
        compactions=facts.get("events", 0),
        max_kv_len=facts.get("max_kv_len"),
        running=held.busy > 0,
    )


@router.delete("/compact_session/{session_id}")
async def delete(session_id: Place, request: Request) -> SessionState:
    """Close a session; answers what it was."""
    last = await state(session_id, request)
    server = of(request)
    await server.sessions.drop(server.sessions.get(session_id))
    return last


async def _respond(server: Server, held: Held, new: Sequence[int], limit: int | None) -> SessionAnswer:
    """One step of the engine, and what the session then is."""
    began, session = time.perf_counter(), held.live
    said = await server.engine.step(session, new, limit, deadline_s=server.config.deadline_s)
    fresh = len(said.events) - held.facts.get("events", 0)
    freed = sum(event.before - event.after for event in said.events)
    held.facts.update(events=len(said.events), freed=freed, turns=held.facts.get("turns", 0) + 1)
    logical = len(session.ids)
    fields = answer(server, logical - len(said.ids), said, time.perf_counter() - began, fresh)
    return SessionAnswer(**fields, session_id=held.name, current_seq_len=logical - freed, logical_len=logical)
