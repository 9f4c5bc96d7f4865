"""In: replies. Out: what an environment of verifiers (v1) says: prompt, tools, tool results, user turns; at its end the
rewards and metrics of its task.

In verifiers a harness drives the model: it calls an endpoint and waits. Here the endpoint is ours (exchange.py): each
call is handed out as an observation, and the reply to it as the call's answer. So our own turn loop samples every turn,
and what the policy read and wrote stays in tokens; verifiers sees texts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from turnwise.envs.extras import need
from turnwise.errors import ConfigError, DataError
from turnwise.types import Message, Observation, Task

if TYPE_CHECKING:
    from turnwise.envs.verifiers.exchange import Asked, Exchange
    from turnwise.envs.verifiers.source import Source

EXTRA = "turnwise[verifiers]"


class Verifiers:
    """One episode.

    taskset: the installed package whose tasks are played, or a table with its `id` and settings. settings: of the
    environment around it, as in verifiers' own [env] table: another environment's `id`, seats such as `agent` with
    max_turns, harness and runtime. success_at: the reward from which an episode counts as a success.
    """

    def __init__(
        self,
        taskset: str | Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
        success_at: float = 1.0,
    ) -> None:
        self.source = _source(taskset, settings)
        self.success_at = success_at
        self.exchange: Exchange | None = None
        self.episode: asyncio.Task[Any] | None = None
        self.asked: Asked | None = None
        self.done = False

    @staticmethod
    def tasks(taskset: str | Mapping[str, Any], settings: Mapping[str, Any] | None = None, **_: Any) -> Iterable[Task]:
        """The tasks of the taskset, in its order; without end if it has none."""
        source = _source(taskset, settings)
        return _tasks(source) if source.endless else list(_tasks(source))

    async def start(self, task: Task) -> Observation:
        """What the harness asks first."""
        from turnwise.envs.verifiers.exchange import Exchange

        if self.episode is not None:
            raise DataError("found an environment that was started before; expected a new one for every episode")
        self.exchange = Exchange()
        await self.exchange.open()
        self.episode = asyncio.create_task(self._play(self.source.task(task.data["place"])))
        return await self._next()

    async def step(self, message: Message) -> Observation:
        """Answer what was asked, and wait for what is asked next."""
        if self.asked is None or self.done:
            raise DataError(
                f"found a step {'after the end' if self.done else 'before the start'}; expected start, step, close"
            )
        self.asked.reply.set_result(message)
        return await self._next()

    async def close(self) -> None:
        """End what still runs: an episode that is stopped here has no reward."""
        if self.episode is not None:
            self.episode.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self.episode
        if self.exchange is not None:
            await self.exchange.close()
            self.exchange = None

    async def _play(self, task: Any) -> Any:
        """The whole episode, as verifiers runs it."""
        import verifiers.v1 as vf

        from turnwise.envs.verifiers.exchange import MODEL

        assert self.exchange is not None
        client = vf.EvalClientConfig(base_url=self.exchange.url, api_key_var="TURNWISE_NO_KEY")
        env = self.source.env()
        async with env.serving():
            return await env.run_episode(task, vf.ModelContext(MODEL, client))

    async def _next(self) -> Observation:
        """The next question, or the end, whichever comes."""
        assert self.exchange is not None
        assert self.episode is not None
        waiting = asyncio.ensure_future(self.exchange.asked.get())
        try:
            done, _ = await asyncio.wait({waiting, self.episode}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if waiting not in done:
            return self._end(self.episode.result())
        before, self.asked = self.asked, waiting.result()
        return Observation(_new(before, self.asked), tools=None if before else self.asked.tools or None)

    def _end(self, episode: Any) -> Observation:
        """Rewards and metrics of the trace that was ours; an episode that failed says why."""
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        ours = [trace for trace in episode.traces if self.asked and trace.id == self.asked.trace]
        if not ours or not episode.ok:
            raise DataError(f"the episode failed: {'; '.join(f'{e.type}: {e.message}' for e in errors) or 'no trace'}")
        self.done = True
        trace, reward = ours[0], float(ours[0].reward)
        named = {name: found.value for name, found in trace.rewards.items() if found is not None}
        scored = {**{name: n for name, n in trace.metrics.items() if n is not None}, **named}
        metrics = {"turns": float(trace.num_turns), **{name: float(n) for name, n in scored.items()}}
        return Observation(reward=reward, done=True, metrics={**metrics, "success": float(reward >= self.success_at)})


def _tasks(source: Source) -> Iterator[Task]:
    for place in count():
        if source.task(place) is None:
            return
        name = source.config.taskset.id
        yield Task(f"verifiers/{name}/{source.keys[place]}", {"place": place})


def _new(before: Asked | None, asked: Asked) -> list[Message]:
    """What was said since the last question: all of it at first, then what stands behind the reply to it."""
    if before is None:
        return asked.messages
    held = len(before.messages)
    if asked.trace != before.trace:
        raise DataError(
            "found a second conversation in one episode; expected one: give every other seat a client of its own "
            "under env.args.settings"
        )
    same = [*map(_said, asked.messages[:held])] == [*map(_said, before.messages)]
    if not same or [m["role"] for m in asked.messages[held : held + 1]] != ["assistant"]:
        raise DataError(
            "found a history that the harness has rewritten; expected one that only grows: choose a harness that does "
            "not compact (rewriting is what [rollout] settings of Turnwise are for)"
        )
    return asked.messages[held + 1 :]


def _said(message: Message) -> tuple[str, str]:
    """Role and content; a reply's own text is ours anyway."""
    content = "" if message["role"] == "assistant" else message.get("content") or ""
    return message["role"], content if isinstance(content, str) else json.dumps(content)


def _source(taskset: str | Mapping[str, Any], settings: Mapping[str, Any] | None) -> Source:
    """The source of these settings, the same one every time."""
    need("verifiers", "verifiers", EXTRA)
    table = {"id": taskset} if isinstance(taskset, str) else dict(taskset)
    if not table.get("id"):
        raise ConfigError(f"found taskset {taskset!r}; expected the name of an installed package, or a table with id")
    return _opened(json.dumps({**(settings or {}), "taskset": table}, sort_keys=True))


@cache
def _opened(settings: str) -> Source:
    from turnwise.envs.verifiers.source import Source

    return Source(json.loads(settings))
