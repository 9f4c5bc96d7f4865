"""From a prompt to running completions: what all routes that answer one have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from fastapi import Request

from turnwise.errors import RenderError
from turnwise.serve.problem import Problem
from turnwise.serve.server import Server, client_of, seed_of
from turnwise.serve.streams import Start
from turnwise.types import Completion, Listener, Sampling, TurnStop


def render(server: Server, messages: Sequence[dict[str, Any]], tools: Any) -> list[int]:
    """Messages to the prompt's tokens."""
    listed: Any = [{**m, "role": "system"} if m["role"] == "developer" else m for m in messages]
    try:
        ids = server.renderer.render_ids(listed, tools=tools, add_generation_prompt=True)
    except RenderError:
        raise
    except Exception as error:
        raise Problem(
            400,
            f"messages that the model's template refuses: {error}"[:200],
            "a conversation it can render",
            "Change 'messages'.",
            param="messages",
        ) from error
    server.check_prompt(ids)
    return [int(i) for i in ids]


def begin(
    server: Server, request: Request, prompt: list[int], how: Sampling, seed: int | None, n: int, session: str | None
) -> list[Start]:
    """The steps that answer a prompt `n` times; a session can only go on in one way."""
    if session is not None and n > 1:
        raise Problem(400, f"n {n} with X-Session-ID", "n 1", "A session goes on in one way: leave one out.", param="n")
    first, client = seed_of(seed), client_of(request)
    server.meters.prompt_tokens.inc(len(prompt))

    def start(index: int) -> Start:
        async def run(listen: Listener | None = None) -> Completion:
            done = await server.complete(prompt, how, first + index, client, session, listen)
            server.meters.sampled_tokens.inc(len(done.ids))
            return done

        return run

    return [start(index) for index in range(n)]


async def together(starts: Sequence[Start]) -> list[Completion]:
    """All at once; if one fails the others stop."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(start(_deaf)) for start in starts]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _deaf(token: Any) -> None:
    """Nobody listens."""


def finish(completion: Completion, message: dict[str, Any] | None = None) -> Literal["stop", "length", "tool_calls"]:
    if completion.stop_reason is not TurnStop.STOP:
        return "length"
    return "tool_calls" if message and message.get("tool_calls") else "stop"
