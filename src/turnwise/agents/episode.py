"""One episode: an environment and a policy take turns until one of them, or a limit, ends it.

The conversation's tokens are kept as they were read and sampled; the engine's session is fed only what is new.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from renderers import Renderer

from turnwise.agents.compaction import Plan
from turnwise.errors import RenderError
from turnwise.text import Dialogue, explain
from turnwise.types import (
    Attribution,
    Completion,
    Engine,
    Env,
    EpisodeStop,
    Observation,
    Sampling,
    Session,
    Trajectory,
    Turn,
    TurnStop,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an episode ends at the latest."""

    turns: int
    tokens: int
    timeout_s: float


async def play(
    env: Env,
    trajectory: Trajectory,
    engine: Engine,
    renderer: Renderer,
    sampling: Sampling,
    limits: Limits,
    compaction: Plan | None = None,
) -> Trajectory:
    """Fill an empty trajectory; whatever the environment raises becomes its stop reason and error."""
    episode = _Episode(env, trajectory, engine, renderer, sampling, limits, compaction)
    try:
        async with asyncio.timeout(limits.timeout_s):
            trajectory.stop_reason = await episode.run()
    except TimeoutError:
        trajectory.stop_reason, trajectory.error = EpisodeStop.TIMEOUT, f"took over {limits.timeout_s} s"
    except _EnvFailed as failure:
        trajectory.stop_reason, trajectory.error = EpisodeStop.ENV_ERROR, repr(failure.__cause__)
    finally:
        await episode.close()
        await _closed(env, trajectory, limits.timeout_s)
    return trajectory


async def _closed(env: Env, trajectory: Trajectory, timeout_s: float) -> None:
    """Close the environment; one that fails at that has still played its episode, so it is only counted."""
    try:
        async with asyncio.timeout(timeout_s):
            await env.close()
    except Exception:  # noqa: BLE001 - an environment may raise anything
        trajectory.metrics["close_failed"] = 1.0


class _EnvFailed(Exception):
    """Something an environment raised, told apart from our own bugs, which rise."""


class _Episode:
    """An episode under way: the dialogue, and the session that holds as much of it as the engine has seen."""

    def __init__(
        self,
        env: Env,
        trajectory: Trajectory,
        engine: Engine,
        renderer: Renderer,
        sampling: Sampling,
        limits: Limits,
        compaction: Plan | None = None,
    ) -> None:
        self.env = env
        self.trajectory = trajectory
        self.engine = engine
        self.renderer = renderer
        self.sampling = sampling
        self.limits = limits
        self.compaction = compaction
        self.session: Session | None = None

    async def run(self) -> EpisodeStop:
        """Observe, reply, act; returns why it ended."""
        seen = await self._env(self.env.start(self.trajectory.task))
        dialogue = Dialogue(self.renderer, tools=seen.tools)
        self.trajectory.messages, self.trajectory.oracle = dialogue.messages, seen.oracle
        self._score(seen)
        limit = None
        while not seen.done:
            self._read(dialogue, seen)
            room = self.limits.tokens - len(dialogue.prompt_ids)
            if room < 1:
                return EpisodeStop.TOKEN_LIMIT if self.trajectory.turns else EpisodeStop.OVERLONG
            completion = await self._complete(dialogue, room)
            message = dialogue.reply(completion.ids.tolist(), completion.injected)
            seen = await self._env(self.env.step(message))
            self._score(seen)
            limit = self._limit(completion, room)
            if limit and not seen.done:
                break
        # What is said last is read by nobody, but belongs to the conversation.
        self.trajectory.messages = [*dialogue.messages, *seen.messages]
        return EpisodeStop.DONE if seen.done or limit is None else limit

    def _limit(self, completion: Completion, room: int) -> EpisodeStop | None:
        """The limit this turn has reached, if any."""
        if completion.stop_reason is TurnStop.LENGTH and len(completion.ids) == room:
            return EpisodeStop.TOKEN_LIMIT
        return EpisodeStop.TURN_LIMIT if len(self.trajectory.turns) >= self.limits.turns else None

    def _read(self, dialogue: Dialogue, seen: Observation) -> None:
        """Messages that cannot become tokens are the environment's failure."""
        try:
            dialogue.add(seen.messages)
        except RenderError as error:
            raise _EnvFailed from error

    async def _env(self, call: Awaitable[T]) -> T:
        began = time.perf_counter()
        try:
            return await call
        except Exception as error:
            raise _EnvFailed from error
        finally:
            self._spent("env", began)

    async def _complete(self, dialogue: Dialogue, room: int) -> Completion:
        """Feed the session what it has not read, sample, and record the turn."""
        began = time.perf_counter()
        prompt = dialogue.prompt_ids
        new = await self._unread(prompt, dialogue.attribution)
        assert self.session is not None
        completion = await self.engine.step(self.session, new, min(room, self.sampling.max_tokens))
        self._spent("model", began)
        turn = Turn(
            prompt_ids=prompt,
            completion_ids=completion.ids,
            logprobs=completion.logprobs,
            policy_versions=completion.policy_versions,
            stop_reason=completion.stop_reason,
            attribution=dialogue.attribution,
            support=completion.support,
            events=completion.events,
            injected=completion.injected,
            temperature=self.sampling.temperature,
        )
        turns, messages = self.trajectory.turns, dialogue.messages
        turn.prefix = explain(turn, turns, messages, self.renderer, condensed=dialogue.condensed)
        turns.append(turn)
        return completion

    async def _unread(self, prompt: np.ndarray, said: Attribution) -> list[int]:
        """What the session has not seen of the prompt; a history that was rewritten opens a new session."""
        ids = prompt.tolist()
        if self.session is not None:
            held = self.session.ids
            if len(held) < len(ids) and ids[: len(held)] == list(held):
                return list(ids[len(held) :])
            await self.close()
        compaction = None if self.compaction is None else self.compaction.opened(said)
        self.session = await self.engine.open(ids, self.sampling, seed=self._seed(), compaction=compaction)
        return []

    def _seed(self) -> int:
        """A reopened session must not draw the same numbers again."""
        return self.trajectory.seed + 1_000_003 * len(self.trajectory.turns)

    def _score(self, seen: Observation) -> None:
        """Rewards and metrics belong to the turn that earned them, and to the trajectory."""
        if not math.isfinite(seen.reward):
            raise _EnvFailed from ValueError(f"found reward {seen.reward}, expected a finite number")
        for turn in self.trajectory.turns[-1:]:
            turn.reward, turn.metrics = seen.reward, dict(seen.metrics)
        self.trajectory.reward += seen.reward
        self.trajectory.metrics.update(seen.metrics)

    def _spent(self, where: str, began: float) -> None:
        seconds = self.trajectory.seconds
        seconds[where] = seconds.get(where, 0.0) + time.perf_counter() - began

    async def close(self) -> None:
        if self.session is not None:
            await self.engine.close(self.session)
            self.session = None
