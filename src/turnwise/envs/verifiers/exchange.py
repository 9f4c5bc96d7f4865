"""An OpenAI-shaped endpoint on this machine whose replies are given one at a time: what a harness asks is handed out as
it comes, and the harness waits until it is answered.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from turnwise.types import Message, Tool

MODEL = "turnwise"
SESSION = "X-Session-ID"
"""The header in which verifiers names the trace that a request belongs to."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: the whole conversation so far, whose it is, and where its reply goes."""

    messages: list[Message]
    tools: list[Tool]
    trace: str
    reply: asyncio.Future[Message]


class Exchange:
    """The endpoint of one episode."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._answer)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        self.url = ""

    async def open(self) -> None:
        """Listen on a free port."""
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/v1"

    async def close(self) -> None:
        await self.runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        trace = request.headers.get(SESSION, "")
        self.asked.put_nowait(Asked(body["messages"], body.get("tools") or [], trace, future))
        message = await future
        if not body.get("stream"):
            return web.json_response(_completion(message, "chat.completion", "message"))
        chunk = json.dumps(_completion(message, "chat.completion.chunk", "delta"))
        return web.Response(text=f"data: {chunk}\n\ndata: [DONE]\n\n", content_type="text/event-stream")


def _completion(message: Message, kind: str, field: str) -> dict[str, Any]:
    """A reply as the OpenAI API says it, whole or as the only piece of a stream."""
    calls = [{**call, "index": n} if field == "delta" else call for n, call in enumerate(_calls(message))]
    said = {"role": "assistant", "content": message.get("content") or "", **({"tool_calls": calls} if calls else {})}
    if message.get("reasoning_content"):
        said["reasoning_content"] = message["reasoning_content"]
    choice = {"index": 0, field: said, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": "turnwise", "object": kind, "created": 0, "model": MODEL, "choices": [choice]}


def _calls(message: Message) -> list[dict[str, Any]]:
    """The tool calls of a reply; one that names a tool but can not be read is passed on as it was written, so that the
    harness says what is wrong with it."""
    broken = [call for call in message.get("failed_calls") or [] if call.get("name")]
    return [
        *(message.get("tool_calls") or []),
        *(
            {"id": f"failed_{n}", "type": "function", "function": {"name": call["name"], "arguments": call["raw"]}}
            for n, call in enumerate(broken)
        ),
    ]
