"""Every answer that is not a result: a status, and what was found, what was expected and how to mend it.

400 what was asked for makes no sense     409 a session is in use, or a step comes out of turn
401 no admin token                        413 too long for the server, the model or the budget
403 a wrong one                           422 a field has the wrong type
404 no such model, session or route       429 no room now: Retry-After says when
499 the client went away (nobody reads it)  503 the server is stopping, or its engine cannot be reached
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from turnwise.errors import EngineDown, EngineError, EngineFull, SessionGone, TooLong, TurnwiseError

LONGEST = 200
"""Characters of what was found that are repeated."""
RETRY = {"Retry-After": "1"}
"""How soon what had no room may come again, in seconds."""
ERRORS = (400, 404, 405, 408, 409, 413, 422, 429, 499, 500, 503)
"""What a route that samples may answer beside 200."""
STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
"""For OpenAPI: with `stream` the answer is server-sent events."""


class Trouble(BaseModel):
    """What went wrong; `message` is the other three in one line, `type`, `param` and `code` are as OpenAI has them."""

    message: str
    type: str
    param: str | None = None
    code: int
    found: str
    expected: str
    mend: str


class Answer(BaseModel):
    """The body of every error."""

    error: Trouble


class Problem(Exception):
    """Raised anywhere below a route; becomes its answer."""

    def __init__(
        self,
        status: int,
        found: str,
        expected: str,
        mend: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"found {found}; expected {expected}")
        self.status = status
        self.found = found
        self.expected = expected
        self.mend = mend
        self.param = param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        trouble = Trouble(
            message=f"found {self.found}; expected {self.expected}. {self.mend}",
            type=_type(self.status),
            param=self.param,
            code=self.status,
            found=self.found,
            expected=self.expected,
            mend=self.mend,
        )
        return Answer(error=trouble).model_dump()


def full(found: str, expected: str) -> Problem:
    """429: try again."""
    return Problem(429, found, expected, "Try again after the seconds that Retry-After names.", headers=RETRY)


def explain(error: TurnwiseError) -> Problem:
    """What the engine, the renderer or a file refused, as an answer."""
    found, expected, rest = _parts(str(error))
    mends: list[tuple[type[TurnwiseError], int, str]] = [
        (EngineFull, 429, "Try again after the seconds that Retry-After names."),
        (TooLong, 413, "Send fewer tokens, or serve with a larger limit."),
        (SessionGone, 404, "Open a new session."),
        (EngineDown, 503, "Try again; look at the log of the server behind this one."),
        (EngineError, 400, "Change the request."),
        (TurnwiseError, 400, "Change the request."),
    ]
    status, mend = next((status, mend) for kind, status, mend in mends if isinstance(error, kind))
    return Problem(status, found, expected, rest or mend, headers=RETRY if status in (429, 503) else None)


def _parts(text: str) -> tuple[str, str, str]:
    """The three parts of an error's text: "found 3; expected 4; add 1" is 3, 4 and Add 1."""
    found, _, rest = text.removeprefix("found ").partition("; ")
    wanted = rest.startswith("expected ")
    expected, _, mend = rest.removeprefix("expected ").partition("; ") if wanted else ("", "", rest)
    mend = f"{mend[:1].upper()}{mend[1:].rstrip('.')}." if mend else ""
    return found, expected or "a request this server can serve", mend


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for OpenAPI."""
    return {s: {"model": Answer, "description": _phrase(s)} for s in statuses}


def install(app: FastAPI) -> None:
    """Answer every exception in this shape."""

    @app.exception_handler(Problem)
    async def _problem(request: Request, error: Problem) -> JSONResponse:  # noqa: ARG001
        return answer(error)

    @app.exception_handler(TurnwiseError)
    async def _refused(request: Request, error: TurnwiseError) -> JSONResponse:  # noqa: ARG001
        return answer(explain(error))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:  # noqa: ARG001
        return answer(_field(error.errors()))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        return answer(_route(request, error))

    @app.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
        return answer(
            Problem(500, f"{type(error).__name__}: {error}"[:LONGEST], "no failure", "This is a bug: report it.")
        )


def answer(problem: Problem) -> JSONResponse:
    return Ascii(problem.body, problem.status, problem.headers)


class Ascii(JSONResponse):
    """JSON in ASCII: what was found may hold half a character, which UTF-8 cannot."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def _field(errors: Sequence[Any]) -> Problem:
    """The first field that is wrong, and how many more are."""
    first: Mapping[str, Any] = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    if first["type"] == "json_invalid":
        return Problem(400, f"a body that is not JSON at character {place}", "a JSON object", "Send valid JSON.")
    more = f" {len(errors) - 1} more fields are wrong too." if len(errors) > 1 else ""
    text = str(first["msg"]).removeprefix("Value error, ")
    if text.startswith("found "):  # fields that do not go together, in the words of their own check
        found, expected, mend = _parts(text)
        return Problem(400, found, expected, (mend or "Change one of them.") + more)
    found = "nothing" if first["type"] == "missing" else repr(first.get("input"))[:LONGEST]
    expected = _wanted(first, text)
    return Problem(422, f"{found} in {place!r}", expected, f"Change {place!r}.{more}", param=place)


def _wanted(error: Mapping[str, Any], text: str) -> str:
    """What pydantic expected, in our words where its own are about itself."""
    said: Mapping[str, Any] = error.get("ctx") or {}
    plain = {
        "extra_forbidden": "no such field",
        "missing": "a value",
        "too_short": f"at least {said.get('min_length')} of them",
        "too_long": f"at most {said.get('max_length')} of them",
        "string_pattern_mismatch": f"text that matches {said.get('pattern')}",
    }
    return plain.get(error["type"], text.removeprefix("Input should be "))


def _route(request: Request, error: HTTPException) -> Problem:
    where = f"{request.method} {request.url.path}"[:LONGEST]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem(404, where, "a route of this server", "GET /openapi.json lists them.")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted(_methods(request)))
        return Problem(405, where, allowed, "GET /openapi.json lists the routes.", headers={"Allow": allowed})
    return Problem(
        error.status_code, f"{where}: {error.detail}"[:LONGEST], "a body that can be read", "Change the request."
    )


def _methods(request: Request) -> set[str]:
    """Every method that some route has for this path; a path that is spelled out goes before one with a name in it."""
    paths: dict[str, Any] = request.app.openapi()["paths"]
    here = request.url.path
    patterns = {path: re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) for path in paths}
    found = [here] if here in paths else [path for path in paths if re.fullmatch(patterns[path], here)]
    return {method.upper() for path in found for method in paths[path]} or {"GET"}


def _phrase(status: int) -> str:
    return "Client Closed Request" if status == 499 else HTTPStatus(status).phrase


def _type(status: int) -> str:
    names = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    return names.get(status, "server_error" if status >= 500 else "invalid_request_error")
