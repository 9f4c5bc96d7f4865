"""POST /v1/chat/completions: OpenAI's shape, with token ids on request."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from turnwise.engine.wire import Whole
from turnwise.serve import logprobs
from turnwise.serve.ask import begin, finish, render, together
from turnwise.serve.bodies import (
    MOST_CHOICES,
    MOST_TOP,
    Drawn,
    Positive,
    SessionId,
    StreamOptions,
    Unused,
    Usage,
    sampling,
)
from turnwise.serve.logprobs import ChatLogprobs
from turnwise.serve.problem import ERRORS, STREAMED, documented
from turnwise.serve.reply import Reply
from turnwise.serve.server import Server, of
from turnwise.serve.streams import Part, stream
from turnwise.types import Completion

router = APIRouter(tags=["OpenAI"])


class ChatMessage(BaseModel):
    """One message, OpenAI shape."""

    model_config = ConfigDict(extra="allow", strict=True)
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class ChatTool(BaseModel):
    """One tool, OpenAI function-calling shape."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["function"]
    function: dict[str, Any]


class ResponseFormat(BaseModel):
    """Only free text: a grammar would make log-probabilities inexact."""

    type: Literal["text"]


class ChatBody(Drawn, Unused):
    """A conversation to answer."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    model: str | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES), Whole] | None = None
    tools: list[ChatTool] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP), Whole] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def offered(self) -> Any:
        """The tools the model is told of."""
        return None if self.tool_choice == "none" or not self.tools else [tool.model_dump() for tool in self.tools]


class ChatChoice(BaseModel):
    """One reply."""

    index: int
    message: dict[str, Any]
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | None = None


class ChatAnswer(BaseModel):
    """All replies to a conversation."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None


@router.post(
    "/v1/chat/completions",
    response_model=ChatAnswer,
    response_model_exclude_none=True,
    responses={**documented(*ERRORS), **STREAMED},
)
async def chat(body: ChatBody, request: Request, x_session_id: SessionId = None) -> ChatAnswer | Response:
    """Render the messages, sample `n` replies, and read content, reasoning and tool calls off their tokens."""
    server = of(request)
    server.check_model(body.model)
    prompt = render(server, [message.model_dump(exclude_none=True) for message in body.messages], body.offered)
    how = sampling(body, server, max_tokens=body.limit, top=body.top_logprobs or 0, ends=True)
    starts = begin(server, request, prompt, how, body.seed, body.n or 1, x_session_id)
    if body.stream:
        return await stream(server, request, starts, lambda parts: _events(server, body, prompt, parts))
    with server.admit():
        said = await server.attend(request, together(starts))
    return _answer(server, body, prompt, said)


def _answer(server: Server, body: ChatBody, prompt: list[int], said: Sequence[Completion]) -> ChatAnswer:
    return ChatAnswer(
        id=f"chatcmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=server.name,
        choices=[_choice(server, body, prompt, index, completion) for index, completion in enumerate(said)],
        usage=Usage.of(len(prompt), sum(len(c.ids) for c in said)),
        prompt_token_ids=prompt if body.return_token_ids else None,
    )


def _choice(server: Server, body: ChatBody, prompt: list[int], index: int, completion: Completion) -> ChatChoice:
    ids = completion.ids.tolist()
    message = Reply(server, prompt, body.offered, body.stops, ids).message(completion.stopped_by)
    named = logprobs.by_text(server.text)
    return ChatChoice(
        index=index,
        message=message,
        finish_reason=finish(completion, message),
        logprobs=logprobs.chat(completion.heard, named) if body.logprobs else None,
        token_ids=ids if body.return_token_ids else None,
    )


async def _events(
    server: Server, body: ChatBody, prompt: list[int], parts: AsyncIterator[Part]
) -> AsyncIterator[dict[str, Any]]:
    """Chunks: the role first, then what is new of each reply, its finish, and at the end the usage if asked for."""
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": server.name,
    }
    n = body.n or 1
    replies = [Reply(server, prompt, body.offered, body.stops) for _ in range(n)]
    for index in range(n):
        opening: dict[str, Any] = {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        told = {"prompt_token_ids": prompt} if body.return_token_ids and not index else {}
        yield {**head, **told, "choices": [opening]}
    async for part in parts:
        yield {**head, "choices": [_delta(server, body, replies[part.index], part)]}
    if body.stream_options and body.stream_options.include_usage:
        sampled = sum(len(reply.ids) for reply in replies)
        yield {**head, "choices": [], "usage": Usage.of(len(prompt), sampled).model_dump()}


def _delta(server: Server, body: ChatBody, reply: Reply, part: Part) -> dict[str, Any]:
    """One chunk's choice."""
    delta = reply.grow([token.id for token in part.tokens])
    reason = None
    if part.whole is not None:
        message, last = reply.finish(part.whole.stopped_by)
        reason = finish(part.whole, message)
        for key, more in last.items():
            delta[key] = delta.get(key, "") + more if isinstance(more, str) else more
    choice: dict[str, Any] = {"index": part.index, "delta": delta, "finish_reason": reason}
    if body.logprobs:
        choice["logprobs"] = logprobs.chat(part.tokens, logprobs.by_text(server.text)).model_dump()
    if body.return_token_ids:
        choice["token_ids"] = [token.id for token in part.tokens]
    return choice
