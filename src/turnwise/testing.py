"""Shipped fakes, for our tests and yours: a scripted engine, a byte tokenizer, a model of a few thousand weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.config.run import TinyConfig
from turnwise.errors import EngineError
from turnwise.model import Policy, tiny
from turnwise.types import (
    Compaction,
    Completion,
    Event,
    Listener,
    Sampled,
    Sampling,
    Session,
    Settings,
    Support,
    TurnStop,
)

BYTES = 259
"""A token for each byte, and three special ones."""


def byte_tokenizer() -> Any:
    """A Hugging Face tokenizer whose tokens are single bytes, with the ChatML special tokens and template."""
    return tiny.train_tokenizer([], vocab=BYTES)


def tiny_model(seed: int = 0, **shape: int) -> Policy:
    """A random model over the byte tokenizer; `shape` overrides TinyConfig's fields."""
    config = TinyConfig(**{"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "vocab": BYTES, **shape})
    return tiny.build([], config, seed, device="cpu")


@dataclass(slots=True, eq=False)
class FakeSession:
    """What a scripted session has read and said."""

    sampling: Sampling
    replies: Iterator[Sequence[int]]
    ids: list[int] = field(default_factory=list)


class FakeEngine:
    """Implements types.Engine: each session gives the scripted replies in order, every token with log-probability -1.

    `read` lists what each step was fed, so that a test can compare it. A fork says the script from its beginning.
    """

    def __init__(self, replies: Sequence[Sequence[int]]) -> None:
        self.replies = replies
        self.version = 0
        self.read: list[list[int]] = []
        self._sessions: set[FakeSession] = set()

    @property
    def open_sessions(self) -> int:
        return len(self._sessions)

    async def open(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,  # noqa: ARG002
        client: str = "",  # noqa: ARG002
        compaction: Compaction | None = None,  # noqa: ARG002
    ) -> FakeSession:
        return self._hold(FakeSession(sampling, iter(self.replies), list(prompt_ids)))

    async def step(
        self,
        session: Session,
        new_ids: Sequence[int],
        max_tokens: int | None = None,
        *,
        whole: bool = False,
        sampling: Sampling | None = None,
        seed: int | None = None,  # noqa: ARG002
        deadline_s: float | None = None,  # noqa: ARG002
        listen: Listener | None = None,
    ) -> Completion:
        held = self._own(session)
        held.sampling = sampling or held.sampling
        held.ids = list(new_ids) if whole else [*held.ids, *new_ids]
        self.read.append(list(new_ids))
        limit = held.sampling.max_tokens if max_tokens is None else max_tokens
        if not held.ids or limit < 1:
            raise EngineError(f"found {len(held.ids)} tokens to read and max_tokens {limit}; expected at least 1")
        reply = next(held.replies, None)
        if reply is None:
            raise EngineError(f"the script holds {len(self.replies)} replies and all are said; give FakeEngine more")
        said = np.array(reply[:limit], np.int32)
        held.ids.extend(said.tolist())
        if listen is not None:
            for token in said.tolist():
                listen(Sampled(token, -1.0, self.version))
        return Completion(
            ids=said,
            logprobs=np.full(len(said), -1.0, np.float32),
            policy_versions=np.full(len(said), self.version, np.int32),
            stop_reason=TurnStop.STOP if len(said) == len(reply) else TurnStop.LENGTH,
            support=Support.whole(len(said)) if held.sampling.restricted else None,
        )

    async def compact(
        self,
        session: Session,
        region: tuple[int, int] | None = None,  # noqa: ARG002
        settings: Settings | None = None,  # noqa: ARG002
    ) -> Event | None:
        self._own(session)
        return None

    async def fork(self, session: Session, *, seed: int) -> FakeSession:  # noqa: ARG002
        held = self._own(session)
        return self._hold(FakeSession(held.sampling, iter(self.replies), list(held.ids)))

    async def close(self, session: Session) -> None:
        self._sessions.remove(self._own(session))

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def load(self, folder: Path, version: int) -> None:  # noqa: ARG002
        self.version = version

    def stats(self) -> Mapping[str, float]:
        return {"sessions": float(len(self._sessions)), "version": float(self.version)}

    def _hold(self, session: FakeSession) -> FakeSession:
        self._sessions.add(session)
        return session

    def _own(self, session: Session) -> FakeSession:
        if not isinstance(session, FakeSession) or session not in self._sessions:
            raise EngineError("found a session this engine does not hold (closed, or another engine's); open a new one")
        return session
