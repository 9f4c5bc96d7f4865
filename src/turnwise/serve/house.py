"""GET /v1/models, /health, /ready and /metrics."""

from __future__ import annotations

import time
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from turnwise.serve.problem import RETRY, Problem, documented
from turnwise.serve.server import of

router = APIRouter(tags=["house"])
BORN = int(time.time())


class Model(BaseModel):
    """One model; `max_model_len` is its longest sequence, as vLLM has it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["turnwise"] = "turnwise"
    max_model_len: int | None = None
    version: int
    """How many optimizer steps its weights have seen."""


class Models(BaseModel):
    """What is served."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(BaseModel):
    """A server that answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """A server that would begin a request now."""

    status: Literal["ready"] = "ready"
    sessions: int
    running: int


@router.get("/v1/models")
async def models(request: Request) -> Models:
    """List the model that is served."""
    server = of(request)
    version = int(server.engine.stats().get("version", 0))
    return Models(data=[Model(id=server.name, created=BORN, max_model_len=server.context, version=version)])


@router.get("/v1/models/{name:path}", responses=documented(404))
async def model(name: str, request: Request) -> Model:
    """The model that is served, by its name."""
    of(request).check_model(name or " ")
    return (await models(request)).data[0]


@router.get("/health")
async def health() -> Health:
    """Whether the process answers at all."""
    return Health()


@router.get("/ready", responses=documented(503))
async def ready(request: Request) -> Ready:
    """Whether a request would begin: 503 while weights are paused or the server stops."""
    server = of(request)
    if server.leaving:
        raise Problem(503, "a server that is stopping", "one that serves", "Ask another one.", headers=RETRY)
    if server.engine.stats().get("paused"):
        raise Problem(503, "a paused engine", "one that runs", "POST /resume.", headers=RETRY)
    return Ready(sessions=len(server.sessions), running=server.running)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Everything counted, for Prometheus."""
    return Response(of(request).meters.page(), media_type="text/plain; version=0.0.4; charset=utf-8")
