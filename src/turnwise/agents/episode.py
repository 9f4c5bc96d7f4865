"""One episode: an environment and a policy take turns until one of them, or a limit, ends it.

The conversation's tokens are kept as they were read and sampled; the engine's session is fed only what is new.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from typing import TypeVar

from renderers import Renderer

from turnwise.agents.calls import calls_in
from turnwise.agents.compaction import Plan
from turnwise.agents.desk import Desk, ordered, rest, told
from turnwise.agents.limits import Limits, Rules
from turnwise.agents.summaries import kept
from turnwise.agents.voice import Voice
from turnwise.condense import History
from turnwise.condense.query import query_of
from turnwise.errors import EngineError, RenderError, ToolError, TooLong
from turnwise.text import Dialogue, explain
from turnwise.types import (
    Completion,
    Engine,
    Env,
    EpisodeStop,
    Message,
    Observation,
    Sampling,
    Trajectory,
    Turn,
    TurnStop,
)

T = TypeVar("T")


async def play(
    env: Env,
    trajectory: Trajectory,
    engine: Engine,
    renderer: Renderer,
    sampling: Sampling,
    limits: Limits,
    compaction: Plan | None = None,
    *,
    rules: Rules = Rules(),  # noqa: B008 - frozen
    history: History | None = None,
) -> Trajectory:
    """Fill an empty trajectory. Whatever environment and engine raise becomes its stop reason and error; with a
    `history`, what was said is condensed when that is due."""
    episode = _Episode(env, trajectory, engine, renderer, sampling, limits, compaction, rules, history)
    try:
        async with asyncio.timeout(limits.timeout_s):
            trajectory.stop_reason = await episode.run()
    except TimeoutError:
        trajectory.stop_reason, trajectory.error = EpisodeStop.TIMEOUT, f"took over {limits.timeout_s} s"
    except _EnvFailed as failure:
        trajectory.stop_reason, trajectory.error = EpisodeStop.ENV_ERROR, repr(failure.__cause__)
    except EngineError as error:
        trajectory.stop_reason, trajectory.error = EpisodeStop.ENGINE_ERROR, repr(error)
    except asyncio.CancelledError:
        trajectory.stop_reason, trajectory.error = EpisodeStop.CANCELLED, "cancelled"
        raise
    finally:
        episode.count()
        await _closed(env, episode, limits.timeout_s)
    return trajectory


async def _closed(env: Env, episode: _Episode, timeout_s: float) -> None:
    """Close session and environment; one that fails at that has still played its episode, so it is only counted."""
    try:
        await episode.voice.close()
    except EngineError:
        episode.trajectory.metrics["close_failed"] = 1.0
    try:
        async with asyncio.timeout(timeout_s):
            await env.close()
    except Exception:  # noqa: BLE001 - an environment may raise anything
        episode.trajectory.metrics["close_failed"] = 1.0


class _EnvFailed(Exception):
    """Something an environment raised, told apart from our own bugs, which rise."""


class _Episode:
    """An episode under way."""

    def __init__(
        self,
        env: Env,
        trajectory: Trajectory,
        engine: Engine,
        renderer: Renderer,
        sampling: Sampling,
        limits: Limits,
        compaction: Plan | None,
        rules: Rules,
        history: History | None,
    ) -> None:
        self.env = env
        self.trajectory = trajectory
        self.renderer = renderer
        self.limits = limits
        self.rules = rules
        self.history = history
        self.voice = Voice(engine, sampling, compaction)
        self.desk = Desk([])
        self.replies = 0
        self.faults = 0

    async def run(self) -> EpisodeStop:
        """Observe, reply, act; returns why it ended."""
        seen = await self._env(self.env.start(self.trajectory.task))
        self.desk = self._desk(seen)
        dialogue = Dialogue(self.renderer, tools=self.desk.tools)
        self.trajectory.oracle = seen.oracle
        self._score(seen)
        limit = None
        while not seen.done:
            await self._read(dialogue, seen)
            room = self.limits.tokens - len(dialogue.prompt_ids)
            completion = await self._complete(dialogue, room) if room > 0 else None
            if completion is None:
                return EpisodeStop.TOKEN_LIMIT if self.replies else EpisodeStop.OVERLONG
            message = dialogue.reply(completion.ids.tolist(), completion.injected)
            self.trajectory.messages.append(message)
            self.replies += 1
            faults = self.desk.faults(message)
            self.faults += faults
            if faults and self.rules.bad_call == "end":
                return EpisodeStop.PARSE_ERROR
            seen = await self._act(message)
            self._score(seen)
            limit = self._limit(completion, message, room)
            if limit and not seen.done:
                break
        # What is said last is read by nobody, but belongs to the conversation.
        self.trajectory.messages.extend(seen.messages)
        return EpisodeStop.DONE if seen.done or limit is None else limit

    def _desk(self, seen: Observation) -> Desk:
        """The environment's tools beside the agent's own."""
        own = self.history
        tools = [*(seen.tools or []), *(own.tools if own else [])]
        return Desk(tools, own.answers if own else {}, self.rules.bad_call == "answer")

    def _limit(self, completion: Completion, message: Message, room: int) -> EpisodeStop | None:
        """The limit this turn has reached, if any."""
        cut = completion.stop_reason is TurnStop.LENGTH
        if cut and len(completion.ids) == room:
            return EpisodeStop.TOKEN_LIMIT
        if cut and self.rules.cut == "end":
            return EpisodeStop.LENGTH
        called = calls_in(message) or message.get("failed_calls")
        if self.rules.no_call == "end" and self.desk.tools and not called:
            return EpisodeStop.NO_TOOL_CALL
        return EpisodeStop.TURN_LIMIT if self.replies >= self.limits.turns else None

    async def _read(self, dialogue: Dialogue, seen: Observation) -> None:
        """Take in what was said, and condense where that is due; messages that cannot become tokens are the
        environment's failure."""
        self.trajectory.messages.extend(seen.messages)
        try:
            dialogue.add(seen.messages)
            if self.history and self.history.due(len(dialogue.prompt_ids), self.replies):
                await self._condense(self.history, dialogue)
        except RenderError as error:
            raise _EnvFailed from error

    async def _condense(self, history: History, dialogue: Dialogue) -> None:
        """Rewrite the dialogue; summaries that the policy wrote are turns of this trajectory."""
        began = time.perf_counter()
        query = query_of(history.config.query, self.trajectory.task.data, self.trajectory.messages)
        rewritten = await history.rewrite(dialogue.messages, query)
        self.trajectory.turns.extend(kept(rewritten.turns, self.trajectory.turns))
        if rewritten.messages is not None:
            dialogue.rewrite(rewritten.messages)
        history.settle(len(dialogue.prompt_ids))
        self._spent("condense", began)

    async def _act(self, message: Message) -> Observation:
        """Answer the calls that are the agent's to answer; the environment sees what is left of the reply."""
        answered = self.desk.answers(message)
        left = rest(message, answered)
        seen = Observation() if left is None else await self._step(left)
        seen.messages = ordered(message, answered, seen.messages)
        return seen

    async def _step(self, message: Message) -> Observation:
        """The environment's answer, or that of a tool that could not do what it was asked."""
        try:
            return await self._env(self.env.step(message))
        except _EnvFailed as failure:
            if not isinstance(failure.__cause__, ToolError):
                raise
            text = str(failure.__cause__)
        said: list[Message] = [told(call["id"], call["function"]["name"], text) for call in calls_in(message)]
        return Observation(said or [{"role": "user", "content": text}])

    async def _env(self, call: Awaitable[T]) -> T:
        began = time.perf_counter()
        try:
            return await call
        except Exception as error:
            raise _EnvFailed from error
        finally:
            self._spent("env", began)

    async def _complete(self, dialogue: Dialogue, room: int) -> Completion | None:
        """Feed the session what it has not read, sample, and record the turn; None where the model has no room."""
        began = time.perf_counter()
        limit = min(room, self.voice.sampling.max_tokens)
        try:
            completion = await self.voice.say(dialogue, limit, self._seed())
        except TooLong:
            return None
        self._spent("model", began)
        turn = Turn.of(dialogue.prompt_ids, completion, self.voice.sampling.temperature, dialogue.attribution)
        turns, messages = self.trajectory.turns, dialogue.messages
        turn.prefix = explain(turn, turns, messages, self.renderer, condensed=dialogue.condensed)
        turns.append(turn)
        return completion

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
        self.trajectory.extra.update(seen.extra)

    def count(self) -> None:
        """What the agent counted itself, beside the environment's metrics."""
        counted = {"calls/faults": self.faults} if self.desk.tools or self.faults else {}
        if self.history:
            counted |= {f"condense/{name}": n for name, n in self.history.counts.items()}
        self.trajectory.metrics.update({name: float(n) for name, n in counted.items()})

    def _spent(self, where: str, began: float) -> None:
        seconds = self.trajectory.seconds
        seconds[where] = seconds.get(where, 0.0) + time.perf_counter() - began
