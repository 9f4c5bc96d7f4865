"""POST /inference/v1/generate: token in, token out, in the shape of vLLM's route.

With X-Session-ID the request is one of a session: it brings its whole prompt, and what the session holds of it is not
read again. Nothing else changes: the tokens are the same with and without.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from turnwise.engine.wire import Int, Whole
from turnwise.serve import logprobs
from turnwise.serve.ask import begin, finish, together
from turnwise.serve.bodies import (
    MOST_CHOICES,
    MOST_TOP,
    Body,
    Drawn,
    Positive,
    SessionId,
    StreamOptions,
    Tokens,
    Usage,
    sampling,
)
from turnwise.serve.logprobs import ChatLogprobs
from turnwise.serve.problem import ERRORS, STREAMED, documented
from turnwise.serve.server import of
from turnwise.serve.streams import Part, stream
from turnwise.types import Completion

router = APIRouter(tags=["tokens"])


class SamplingParams(Drawn):
    """vLLM's sampling parameters. Stop tokens are those given: nothing is added."""

    max_tokens: Positive | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES), Whole] = 1
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP), Whole] | None = None
    prompt_logprobs: None = None
    detokenize: bool | None = None
    routed_experts_prompt_start: Annotated[int, Field(ge=0), Whole] | None = None
    """From where on vLLM would tell how experts were chosen, which is told of no token here."""


class GenerateBody(Body):
    """A prompt in tokens."""

    token_ids: Tokens
    sampling_params: SamplingParams = Field(default_factory=SamplingParams)
    model: str | None = None
    request_id: Annotated[str, Field(pattern=r"^[!-~]{1,128}$")] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    cache_salt: str | None = None
    priority: Int | None = None
    features: None = None
    kv_transfer_params: None = None


class GenerateChoice(BaseModel):
    """One completion. `policy_versions` says, token by token, which weights sampled it."""

    index: int
    token_ids: list[int]
    logprobs: ChatLogprobs | None = None
    finish_reason: Literal["stop", "length"]
    stop_reason: int | str | None = None
    policy_versions: list[int]


class GenerateAnswer(BaseModel):
    """All completions of a prompt."""

    request_id: str
    choices: list[GenerateChoice]
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: None = None
    kv_transfer_params: None = None
    usage: Usage


@router.post(
    "/inference/v1/generate",
    response_model=GenerateAnswer,
    responses={**documented(*ERRORS), **STREAMED},
)
async def generate(body: GenerateBody, request: Request, x_session_id: SessionId = None) -> GenerateAnswer | Response:
    """Sample completions of a prompt given as tokens."""
    server, params = of(request), body.sampling_params
    server.check_model(body.model)
    server.check_prompt(body.token_ids)
    how = sampling(params, server, max_tokens=params.max_tokens, top=params.logprobs or 0, ends=False)
    starts = begin(server, request, body.token_ids, how, params.seed, params.n, x_session_id)
    if body.stream:
        return await stream(server, request, starts, lambda parts: _events(body, parts))
    with server.admit():
        said = await server.attend(request, together(starts))
    return GenerateAnswer(
        request_id=body.request_id or uuid.uuid4().hex,
        choices=[_choice(body, index, completion) for index, completion in enumerate(said)],
        prompt_token_ids=body.token_ids if body.return_token_ids else None,
        usage=Usage.of(len(body.token_ids), sum(len(c.ids) for c in said)),
    )


def _choice(body: GenerateBody, index: int, completion: Completion) -> GenerateChoice:
    wanted = body.sampling_params.logprobs is not None
    return GenerateChoice(
        index=index,
        token_ids=completion.ids.tolist(),
        logprobs=logprobs.chat(completion.heard, logprobs.by_id) if wanted else None,
        finish_reason=_reason(completion),
        stop_reason=completion.stopped_by,
        policy_versions=completion.policy_versions.tolist(),
    )


def _reason(completion: Completion) -> Literal["stop", "length"]:
    return "stop" if finish(completion) == "stop" else "length"


async def _events(body: GenerateBody, parts: AsyncIterator[Part]) -> AsyncIterator[dict[str, Any]]:
    """One event a part: its new tokens, and at its end the finish."""
    name, sampled = body.request_id or uuid.uuid4().hex, 0
    async for part in parts:
        sampled += len(part.tokens)
        yield {"request_id": name, "choices": [_delta(body, part)]}
    if body.stream_options and body.stream_options.include_usage:
        usage = Usage.of(len(body.token_ids), sampled).model_dump()
        yield {"request_id": name, "choices": [], "usage": usage}


def _delta(body: GenerateBody, part: Part) -> dict[str, Any]:
    wanted = body.sampling_params.logprobs is not None
    return {
        "index": part.index,
        "token_ids": [token.id for token in part.tokens],
        "policy_versions": [token.policy_version for token in part.tokens],
        "logprobs": logprobs.chat(part.tokens, logprobs.by_id).model_dump() if wanted else None,
        "finish_reason": _reason(part.whole) if part.whole else None,
        "stop_reason": part.whole.stopped_by if part.whole else None,
    }
