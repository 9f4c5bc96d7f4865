"""POST /v1/completions: text or tokens to text, OpenAI's shape; several prompts are answered together."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from turnwise.engine.wire import Whole
from turnwise.serve import logprobs
from turnwise.serve.ask import begin, finish, together
from turnwise.serve.bodies import (
    MOST_CHOICES,
    MOST_TOP,
    Drawn,
    Positive,
    SessionId,
    StreamOptions,
    Tokens,
    Unused,
    Usage,
    sampling,
)
from turnwise.serve.logprobs import TextLogprobs
from turnwise.serve.problem import ERRORS, STREAMED, Problem, documented
from turnwise.serve.reply import cut
from turnwise.serve.server import Server, of
from turnwise.serve.streams import Part, stream
from turnwise.text.pieces import encode
from turnwise.types import Completion

router = APIRouter(tags=["OpenAI"])
MOST_PROMPTS = 64

Prompt = (
    str
    | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS)]
    | Tokens
    | Annotated[list[Tokens], Field(min_length=1, max_length=MOST_PROMPTS)]
)


class TextBody(Drawn, Unused):
    """Prompts to go on from."""

    prompt: Prompt
    model: str | None = None
    max_tokens: Positive | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES), Whole] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP), Whole] | None = None
    echo: bool | None = None
    suffix: None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False


class TextChoice(BaseModel):
    """One completion."""

    index: int
    text: str
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: TextLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class TextAnswer(BaseModel):
    """`n` completions of the first prompt, then of the second, ..."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage


@router.post(
    "/v1/completions",
    response_model=TextAnswer,
    responses={**documented(*ERRORS), **STREAMED},
)
async def complete(body: TextBody, request: Request, x_session_id: SessionId = None) -> TextAnswer | Response:
    """Go on from each prompt, `n` times."""
    server, n = of(request), body.n or 1
    server.check_model(body.model)
    prompts = _prompts(server, body)
    how = sampling(body, server, max_tokens=body.max_tokens or 16, top=body.logprobs or 0, ends=True)
    starts = [start for prompt in prompts for start in begin(server, request, prompt, how, body.seed, n, x_session_id)]
    if body.stream:
        return await stream(server, request, starts, lambda parts: _events(server, body, prompts, parts))
    with server.admit():
        said = await server.attend(request, together(starts))
    return TextAnswer(
        id=f"cmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=server.name,
        choices=[_choice(server, body, prompts[i // n], i, completion) for i, completion in enumerate(said)],
        usage=Usage.of(sum(map(len, prompts)), sum(len(c.ids) for c in said)),
    )


def _prompts(server: Server, body: TextBody) -> list[list[int]]:
    """Every prompt in tokens: [1, 2] is one prompt, ["a", "b"] are two."""
    given: Any = body.prompt
    alone = isinstance(given, str) or isinstance(given[0], int)
    prompts = [
        encode(server.tokenizer, one)[0] if isinstance(one, str) else one for one in ([given] if alone else given)
    ]
    for prompt in prompts:
        if not prompt:
            raise Problem(400, "an empty prompt", "at least one token", "Change 'prompt'.", param="prompt")
        server.check_prompt(prompt)
    return prompts


def _choice(server: Server, body: TextBody, prompt: list[int], index: int, completion: Completion) -> TextChoice:
    ids = completion.ids.tolist()
    text = _text(server, body, ids, completion.stopped_by)
    before = server.text(prompt) if body.echo else ""
    told = None
    if body.logprobs is not None:
        told = logprobs.plain(completion.heard, logprobs.by_text(server.text), len(before))
    return TextChoice(
        index=index,
        text=before + text,
        finish_reason=finish(completion),
        logprobs=told,
        token_ids=ids if body.return_token_ids else None,
        prompt_token_ids=prompt if body.return_token_ids else None,
    )


def _text(server: Server, body: TextBody, ids: list[int], ended_by: int | str | None) -> str:
    """The text of a completion without what ended it."""
    if isinstance(ended_by, int) and ids[-1:] == [ended_by]:
        ids = ids[:-1]
    text = server.text(ids)
    return cut(text, body.stops) if isinstance(ended_by, str) else text


async def _events(
    server: Server, body: TextBody, prompts: list[list[int]], parts: AsyncIterator[Part]
) -> AsyncIterator[dict[str, Any]]:
    """Chunks of new text; what may still become a stop string or another character waits."""
    n = body.n or 1
    head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
    ids: list[list[int]] = [[] for _ in range(n * len(prompts))]
    said = [server.text(prompt) if body.echo else "" for prompt in prompts for _ in range(n)]
    sent = [0] * len(ids)
    base = [len(text) for text in said]
    async for part in parts:
        at = part.index
        ids[at] += [token.id for token in part.tokens]
        text = said[at] + _so_far(server, body, ids[at], part.whole)
        new, old = text[sent[at] :], sent[at]
        sent[at] = max(sent[at], len(text))
        choice: dict[str, Any] = {"index": at, "text": new, "finish_reason": finish(part.whole) if part.whole else None}
        if body.logprobs is not None:
            named = logprobs.by_text(server.text)
            choice["logprobs"] = logprobs.plain(part.tokens, named, max(old, base[at])).model_dump()
        if body.return_token_ids:
            choice["token_ids"] = [token.id for token in part.tokens]
        yield {**head, "model": server.name, "choices": [choice]}
    if body.stream_options and body.stream_options.include_usage:
        usage = Usage.of(sum(map(len, prompts)), sum(map(len, ids))).model_dump()
        yield {**head, "model": server.name, "choices": [], "usage": usage}


def _so_far(server: Server, body: TextBody, ids: list[int], whole: Completion | None) -> str:
    if whole is not None:
        return _text(server, body, ids, whole.stopped_by)
    ended = bool(ids) and ids[-1] in server.renderer.get_stop_token_ids()
    text = cut(server.text(ids[:-1] if ended else ids).rstrip("\ufffd"), body.stops)
    longest = max(map(len, body.stops), default=1) - 1
    return text[: len(text) - longest] if longest else text
