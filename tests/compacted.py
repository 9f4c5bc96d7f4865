"""The plainest engine that compacts: one conversation, a token at a time, an explicit cache; turns with events out."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
import torch

from played import turn
from turnwise.bench.cached import Cache
from turnwise.kv.methods import carried, compact
from turnwise.kv.queries import SOURCES, own_columns, spaced
from turnwise.model import Policy
from turnwise.types import Event, Settings, Turn

FEW = Settings(ratio=0.4, recent=2)
"""Settings for regions of a few tokens."""


class Talk:
    """A conversation: `ids` so far, the first `written` in the cache, whose columns are tokens `where` (-1: slots)."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self.cache = Cache.empty(policy)
        self.draws = torch.Generator().manual_seed(seed)
        self.ids: list[int] = []
        self.where: list[int] = []
        self.written = 0
        self.events: list[Event] = []
        self.said: list[float] = []
        self.prompt: list[int] = []

    def fork(self, seed: int) -> Talk:
        other = copy(self)
        other.cache, other.draws = self.cache.fork(), torch.Generator().manual_seed(seed)
        other.ids, other.where, other.events = list(self.ids), list(self.where), list(self.events)
        return other

    def hear(self, ids: Sequence[int]) -> None:
        """Begin a turn."""
        self.ids += ids
        self.prompt, self.said = list(self.ids), []

    def say(self, count: int) -> None:
        """Read what is new and draw so many tokens; the last of them stays unread."""
        for _ in range(count):
            logp = self.cache.policy.head(self._write()[-1:]).detach().log_softmax(-1)[0]
            token = int(torch.multinomial(logp.exp(), 1, generator=self.draws))
            self.ids.append(token)
            self.said.append(float(logp[token]))

    def done(self) -> Turn:
        """End a turn."""
        return turn(self.prompt, self.ids[len(self.prompt) :], self.said, events=tuple(self.events))

    def strike(self, start: int, end: int, settings: Settings = FEW, source: str = "own") -> None:
        """Compact columns [start, end) of the cache as it stands, all but the last token of the conversation read."""
        if len(self.ids) - self.written > 1:
            self._write(len(self.ids) - 1)
        end = min(end, len(self.where))
        if settings.method == "delete_reread":
            self._again(start, end, settings)
            return
        t, inside = settings.slots(end - start), (start, end)
        stored = self.cache.stored(0, inside)
        columns = own_columns(stored, settings.per_slot * t)
        if source == "suffix":
            asked = stored.columns(end, len(stored.asked_M))
            columns = spaced(asked, -(-settings.per_slot * t // stored.q_KGMD.shape[-3]))
        kept = []
        for number, layer in enumerate(self.cache.layers):
            queries = SOURCES[source](self.cache.stored(number, inside), settings.per_slot * t)
            made = compact(queries, layer.k_KMD, layer.v_KMD, inside, self.cache.scale, settings)
            kept.append(made.keep_KT.numpy() - start)
        self.cache.compact(inside, SOURCES[source], settings)
        self.events.append(
            Event(
                at=self.written,
                start=start,
                end=end,
                method=settings.method,
                kept=np.array(kept, np.int16),
                queries=np.array([self.where[c] for c in columns.tolist()], np.int32),
                source=source,
                span=stored.span,
                ridge=settings.ridge,
            )
        )
        self.where[start:end] = [-1] * t

    def _again(self, start: int, end: int, settings: Settings) -> None:
        """Throw the cache away and read again what stands outside the region, and its head and tail."""
        inside = self.where[start:end]
        kept = [
            inside[i] for a, b in carried(len(inside), settings.carry_head, settings.carry_tail) for i in range(a, b)
        ]
        tokens = [*self.where[:start], *kept, *self.where[end:]]
        heads = self.cache.layers[0].k_KMD.shape[0]
        none = np.zeros((len(self.cache.layers), heads, 0), np.int16)
        queries = np.array(tokens, np.int32)
        self.events.append(Event(self.written, start, end, settings.method, none, queries))
        self.cache, self.where = Cache.empty(self.cache.policy), tokens
        for token in tokens:
            self.cache.read([self.ids[token]])

    def _write(self, until: int | None = None) -> torch.Tensor:
        """Read up to token `until`, one after the other; their hidden states."""
        until = len(self.ids) if until is None else until
        hidden = [self.cache.read([self.ids[n]]) for n in range(self.written, until)]
        self.where += range(self.written, until)
        self.written = until
        return torch.cat(hidden)


def reply(talk: Talk, hear: Sequence[int], say: int, *strikes: tuple[int, int, int], **how: object) -> Turn:
    """A turn in which events (after so many sampled tokens, start, end) strike; 0 is before what is new is read."""
    settings = replace(FEW, **how)  # type: ignore[arg-type]
    for _, start, end in [s for s in strikes if s[0] == 0]:
        talk.strike(start, end, settings)
    talk.hear(hear)
    done = 0
    for after, start, end in [s for s in strikes if s[0]]:
        talk.say(after - done)
        done = after
        talk.strike(start, end, settings)
    talk.say(say - done)
    return talk.done()
