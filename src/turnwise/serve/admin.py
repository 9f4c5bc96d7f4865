"""POST /update_weights, /pause and /resume, for those who hold the admin token."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

from turnwise.engine.wire import Whole
from turnwise.serve.bodies import Body
from turnwise.serve.problem import ERRORS, Problem, documented
from turnwise.serve.server import of
from turnwise.weights import files

bearer = HTTPBearer(auto_error=False, description="The admin token.")


async def admin(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)] = None
) -> None:
    """Refuse who does not bring the token."""
    token = of(request).config.admin_token
    if not token:
        mend = "Start the server with --admin_token, or TURNWISE_ADMIN_TOKEN set."
        raise Problem(403, "a server without an admin token", "one that was started with one", mend)
    if given is None:
        headers = {"WWW-Authenticate": "Bearer"}
        raise Problem(401, "no token", "Authorization: Bearer TOKEN", "Send the admin token.", headers=headers)
    if not hmac.compare_digest(given.credentials.encode(), token.encode()):
        raise Problem(403, "a token that is not the admin's", "the one the server was started with", "Send that one.")


router = APIRouter(tags=["admin"], dependencies=[Depends(admin)], responses=documented(401, 403, *ERRORS))


class WeightsBody(Body):
    """Where the weights are: a folder that `publish` writes to, or one in Hugging Face layout."""

    folder: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]
    version: Annotated[int, Field(ge=0, lt=2**31), Whole] | None = None
    """Of published versions the one to take, by default the newest; of a plain folder the version it is from now on."""


class State(BaseModel):
    """What the engine is now."""

    paused: bool
    version: int


@router.post("/update_weights")
async def update_weights(body: WeightsBody, request: Request) -> State:
    """Load weights at a token border while sessions are live; tokens sampled from then on carry the version."""
    server, folder = of(request), Path(body.folder)
    try:
        plain = body.version is not None and (folder / "config.json").is_file()
        version, place = (body.version or 0, folder) if plain else files.receive(folder, body.version)
    except (OSError, ValueError) as error:
        mend = "Change 'folder'."
        raise Problem(400, f"{body.folder[:80]!r} ({error})"[:200], "a folder that can be read", mend) from error
    await server.engine.load(place, version)
    return _state(request)


@router.post("/pause")
async def pause(request: Request) -> State:
    """Stop sampling at the next token border; requests wait."""
    await of(request).engine.pause()
    return _state(request)


@router.post("/resume")
async def resume(request: Request) -> State:
    """Go on."""
    await of(request).engine.resume()
    return _state(request)


def _state(request: Request) -> State:
    stats = of(request).engine.stats()
    return State(paused=bool(stats.get("paused", 0)), version=int(stats.get("version", 0)))
