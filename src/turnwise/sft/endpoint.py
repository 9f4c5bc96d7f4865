"""Episodes played by an OpenAI-compatible server: whole messages, no tokens."""

from __future__ import annotations

import asyncio

from turnwise.config.run import SamplingConfig
from turnwise.endpoint import Endpoint
from turnwise.errors import EngineError
from turnwise.types import Env, EpisodeStop, Trajectory


async def play(
    env: Env, found: Trajectory, endpoint: Endpoint, sampling: SamplingConfig, turns: int, timeout_s: float
) -> Trajectory:
    """Fill an empty trajectory; whatever environment and server raise becomes its stop reason and error."""
    try:
        async with asyncio.timeout(timeout_s):
            found.stop_reason = await _played(env, found, endpoint, sampling, turns)
    except TimeoutError:
        found.stop_reason, found.error = EpisodeStop.TIMEOUT, f"took over {timeout_s} s"
    except EngineError as error:
        found.stop_reason, found.error = EpisodeStop.ENGINE_ERROR, str(error)
    except Exception as error:  # noqa: BLE001 - an environment may raise anything
        found.stop_reason, found.error = EpisodeStop.ENV_ERROR, repr(error)
    finally:
        await _closed(env, found)
    return found


async def _played(env: Env, found: Trajectory, endpoint: Endpoint, sampling: SamplingConfig, turns: int) -> EpisodeStop:
    seen = await env.start(found.task)
    more = {"tools": list(seen.tools)} if seen.tools else {}
    found.messages.extend(seen.messages)
    for turn in range(turns):
        reply = await endpoint.ask(
            found.messages,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            seed=found.seed + turn,
            top_p=sampling.top_p,
            **more,
        )
        if reply.cut:
            return EpisodeStop.LENGTH
        found.messages.append(reply.message)
        seen = await env.step(reply.message)
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
