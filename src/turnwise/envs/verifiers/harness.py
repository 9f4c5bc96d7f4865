"""A harness of verifiers that runs in this process: the chat loop of its `null` harness, without starting a program."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

from turnwise.types import Message

__all__ = ["ChatHarness"]


class ChatConfig(vf.HarnessConfig):
    """No settings of its own."""


class ChatHarness(vf.Harness[ChatConfig]):
    """Asks, runs the tools that were called, asks again; a reply without a call ends its turn."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,  # noqa: ARG002 - the interception fills it
        runtime: vf.Runtime,  # noqa: ARG002 - nothing is run there
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        messages = _opening(*self.resolve_prompt(data))
        servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        headers = {"Authorization": f"Bearer {secret}"}
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                httpx.AsyncClient(timeout=None, headers=headers, trust_env=False, verify=False)
            )
            tools, *held = await connect_mcp({"mcpServers": servers}, stack)
            while True:
                body = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
                answer = await client.post(f"{endpoint}/chat/completions", json=body)
                if answer.is_error:
                    return vf.ProgramResult(exit_code=1, stdout="", stderr=answer.text)
                reply = answer.json()["choices"][0]["message"]
                messages.append(reply)
                if not reply.get("tool_calls"):
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")
                messages += [await _called(call, *held) for call in reply["tool_calls"]]


def _opening(system: str | None, prompt: Any) -> list[Message]:
    """The conversation's first messages, from a text or from messages."""
    rules: list[Message] = [{"role": "system", "content": system}] if system else []
    if isinstance(prompt, str):
        return [*rules, {"role": "user", "content": prompt}]
    return [*rules, *(message_to_wire(message) for message in prompt or [])]


async def _called(call: dict[str, Any], dispatch: Any, servers: Any) -> Message:
    """What a tool says to a call; what is wrong with a call is said too."""
    name, given = call["function"]["name"], call["function"]["arguments"]
    try:
        arguments = json.loads(given or "{}")
    except ValueError as error:
        arguments = f"error: these arguments are no JSON ({error})"
    if not isinstance(arguments, dict):
        said: Any = arguments if isinstance(arguments, str) else "error: expected a JSON object as arguments"
    elif name not in dispatch:
        said = f"error: no tool {name}; there are {', '.join(sorted(dispatch)) or 'none'}"
    else:
        said = await call_mcp(servers, dispatch, name, arguments)
    return {"role": "tool", "tool_call_id": call["id"], "name": name, "content": said}
