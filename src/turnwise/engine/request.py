"""One step of one session under way: what it has drawn so far and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from turnwise.engine.sample import NOTHING, Draw
from turnwise.engine.session import LocalSession
from turnwise.engine.stops import StopStrings
from turnwise.engine.trie import Node, trie
from turnwise.types import Completion, Ids, Listener, Sampled, Settings, Support, Top, TurnStop


@dataclass(slots=True, eq=False)
class Request:
    """A step from the time it queues to its completion; `columns` is what its cache may come to."""

    session: LocalSession
    max_tokens: int
    columns: int
    done: asyncio.Future[Completion]
    deadline: float
    listen: Listener | None = None
    stops: StopStrings | None = None
    node: Node | None = field(init=False)
    source: LocalSession | None = None
    """Whose reading of the beginning of this prompt will be copied, or is being waited for."""
    common: int = 0
    region: tuple[int, int] | None = None
    settings: Settings | None = None
    """With the region, of a compaction that was asked for."""
    ending: TurnStop | None = None
    """Why it ends, once what is left to do is done."""
    queued: bool = False
    """It has waited for room, and was counted."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    supports: list[Ids] = field(default_factory=list)
    tops: list[Top] = field(default_factory=list)
    injected: list[int] = field(default_factory=list)
    """Which of the tokens were told and not drawn."""
    quiet: int = 0
    """Tokens since the last event or notice."""
    stopped_by: int | str | None = None

    def __post_init__(self) -> None:
        self.node = trie(self.session.sampling.choices) if self.session.sampling.choices else None

    def add(self, draw: Draw, version: int) -> TurnStop | None:
        """Record a sampled token; returns why the step ends, if it does."""
        self.ids.append(draw.id)
        self.logprobs.append(draw.logprob)
        self.versions.append(version)
        self.supports.append(draw.support)
        self.tops.append(draw.top)
        self.session.ids.append(draw.id)
        self.session.sampled += 1
        self.session.drawn += 1
        self.quiet += 1
        if self.listen is not None:
            self.listen(Sampled(draw.id, draw.logprob, version, draw.top))
        return self._stop(draw.id)

    def inject(self, ids: Sequence[int], version: int) -> None:
        """Tell the model something in the middle of its reply."""
        for token in ids:
            self.injected.append(len(self.ids))
            self.ids.append(token)
            self.logprobs.append(0.0)
            self.versions.append(version)
            self.supports.append(NOTHING)
            self.tops.append(())
            self.session.ids.append(token)
            if self.listen is not None:
                self.listen(Sampled(token, 0.0, version))
        self.quiet = 0

    def _stop(self, token: int) -> TurnStop | None:
        if self.node is not None:
            self.node = self.node.children[token]
            self.stopped_by = None if self.node.children else token
        elif token in self.session.sampling.stop_ids:
            self.stopped_by = token
        elif self.stops is not None:
            self.stopped_by = self.stops.ended_by(self.ids[self.injected[-1] + 1 if self.injected else 0 :])
        if self.stopped_by is not None:
            return TurnStop.STOP
        return TurnStop.LENGTH if len(self.ids) >= self.max_tokens else None

    def finish(self, stop: TurnStop) -> None:
        """Hand what was sampled to the caller, if there still is one."""
        if not self.done.done():
            self.done.set_result(self._completion(stop))

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def _completion(self, stop: TurnStop) -> Completion:
        sampling = self.session.sampling
        told = np.isin(np.arange(len(self.ids)), self.injected) if self.injected else None
        return Completion(
            np.array(self.ids, np.int32),
            np.array(self.logprobs, np.float32),
            np.array(self.versions, np.int32),
            stop,
            Support.stack(self.supports) if sampling.restricted else None,
            events=tuple(self.session.events),
            stopped_by=self.stopped_by,
            top=tuple(self.tops) if sampling.top_logprobs else (),
            injected=told,
        )
