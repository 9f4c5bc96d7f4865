"""Episodes played by an OpenAI-compatible server: whole messages, no tokens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from turnwise.config.run import SamplingConfig
from turnwise.config.sft import EndpointConfig
from turnwise.errors import EngineError
from turnwise.text.content import text_of
from turnwise.types import Env, EpisodeStop, Message, Tool, Trajectory

AGAIN_S = 0.5
"""How long to wait before the second try; each further one twice as long."""
LATER = {408, 409, 429, 500, 502, 503, 504}
"""Answers after which the same request may succeed."""


class Endpoint:
    """A server that is asked for one assistant message at a time."""

    def __init__(self, config: EndpointConfig, sampling: SamplingConfig, again_s: float = AGAIN_S) -> None:
        self.config = config
        self.sampling = sampling
        self.again_s = again_s
        key = os.environ.get(config.key_env, "") if config.key_env else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = httpx.AsyncClient(timeout=config.timeout_s, headers=headers)

    async def ask(self, messages: Sequence[Message], tools: Sequence[Tool] | None, seed: int) -> tuple[Message, bool]:
        """The next message, and whether it ran into `max_tokens`; EngineError where the server gives none."""
        body: dict[str, Any] = {
            "model": self.config.name,
            "messages": list(messages),
            "max_tokens": self.sampling.max_tokens,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": seed % 2**31,
        }
        if tools:
            body["tools"] = list(tools)
        problem = ""
        for attempt in range(self.config.retries + 1):
            if attempt:
                await asyncio.sleep(self.again_s * 2 ** (attempt - 1))
            try:
                answer = await self.client.post(f"{self.config.url.rstrip('/')}/chat/completions", json=body)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = repr(error)
                continue
            if answer.status_code == 200:
                return _read(answer)
            problem = f"status {answer.status_code}: {answer.text[:200]}"
            if answer.status_code not in LATER:
                break
        raise EngineError(f"{self.config.url} gives no answer: {problem}")

    async def close(self) -> None:
        await self.client.aclose()


def _read(answer: httpx.Response) -> tuple[Message, bool]:
    """The first choice's message, in the shape that environments are given."""
    try:
        choice = answer.json()["choices"][0]
        said: Mapping[str, Any] = choice["message"]
        kept = {name: said[name] for name in ("reasoning_content", "tool_calls") if said.get(name)}
        return {"role": "assistant", "content": text_of(said), **kept}, choice.get("finish_reason") == "length"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise EngineError(f"found an answer that is no chat completion ({error!r}): {answer.text[:200]}") from error


async def play(env: Env, found: Trajectory, endpoint: Endpoint, turns: int, timeout_s: float) -> Trajectory:
    """Fill an empty trajectory; whatever environment and server raise becomes its stop reason and error."""
    try:
        async with asyncio.timeout(timeout_s):
            found.stop_reason = await _played(env, found, endpoint, turns)
    except TimeoutError:
        found.stop_reason, found.error = EpisodeStop.TIMEOUT, f"took over {timeout_s} s"
    except EngineError as error:
        found.stop_reason, found.error = EpisodeStop.ENGINE_ERROR, str(error)
    except Exception as error:  # noqa: BLE001 - an environment may raise anything
        found.stop_reason, found.error = EpisodeStop.ENV_ERROR, repr(error)
    finally:
        await _closed(env, found)
    return found


async def _played(env: Env, found: Trajectory, endpoint: Endpoint, turns: int) -> EpisodeStop:
    seen = await env.start(found.task)
    tools = seen.tools
    found.messages.extend(seen.messages)
    for turn in range(turns):
        message, cut = await endpoint.ask(found.messages, tools, found.seed + turn)
        if cut:
            return EpisodeStop.LENGTH
        found.messages.append(message)
        seen = await env.step(message)
        found.reward += seen.reward
        found.metrics.update(seen.metrics)
        found.messages.extend(seen.messages)
        if seen.done:
            return EpisodeStop.DONE
    return EpisodeStop.TURN_LIMIT


async def _closed(env: Env, found: Trajectory) -> None:
    """One that fails at closing has still played its episode."""
    try:
        await env.close()
    except Exception:  # noqa: BLE001 - an environment may raise anything
        found.metrics["close_failed"] = 1.0
