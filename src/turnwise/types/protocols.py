"""What an engine and an environment have to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from turnwise.types.chat import Message
from turnwise.types.compaction import Compaction, Event, Settings
from turnwise.types.episode import Observation, Task
from turnwise.types.sampling import Listener, Sampling
from turnwise.types.turn import Completion


class Session(Protocol):
    """A conversation an engine holds open: its tokens (read and sampled) and, out of sight, its cache."""

    @property
    def ids(self) -> Sequence[int]: ...


class Engine(Protocol):
    """Holds sessions and samples from them. One call without a session is open, step, close.

    Several completions of one prompt are as many sessions opened with it: it is read once. Steps of different sessions
    share forward passes; steps of one session run in the order they were asked for. What cannot be served raises
    EngineError; its kinds EngineFull (no room now) and TooLong (never any room) tell which.
    """

    async def open(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        client: str = "",
        compaction: Compaction | None = None,
    ) -> Session:
        """Start a conversation; nothing is read or sampled yet. `client` is whom limits count it against."""
        ...

    async def step(
        self,
        session: Session,
        new_ids: Sequence[int],
        max_tokens: int | None = None,
        *,
        whole: bool = False,
        sampling: Sampling | None = None,
        seed: int | None = None,
        deadline_s: float | None = None,
        listen: Listener | None = None,
    ) -> Completion:
        """Read `new_ids` after everything the session holds, then sample a completion.

        With `whole`, `new_ids` are the whole prompt: the longest prefix the session holds of it is kept, the rest of
        the session dropped and the rest of the prompt read. `sampling` and `seed` replace the session's from here on;
        draws depend on the seed and how many tokens were sampled since it was set. After `deadline_s` seconds the
        step returns what it has. Cancelling the awaiting task leaves the session as it was before the step.
        """
        ...

    async def compact(
        self, session: Session, region: tuple[int, int] | None = None, settings: Settings | None = None
    ) -> Event | None:
        """Compact the columns [start, end) of the cache now, by default all but the protected ones; None where that
        would free nothing. The next completion's `events` name it too."""
        ...

    async def fork(self, session: Session, *, seed: int) -> Session:
        """A second conversation that continues from the same tokens without reading them again."""
        ...

    async def close(self, session: Session) -> None:
        """Forget a conversation; a step that runs on it fails."""
        ...

    async def pause(self) -> None:
        """Stop at the next token border: steps wait, sessions stay; returns when nothing is being computed."""
        ...

    async def resume(self) -> None:
        """Go on where `pause` stopped."""
        ...

    async def load(self, folder: Path, version: int) -> None:
        """Take the weights saved in `folder`, at a token border; tokens sampled from then on carry `version`."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Counts since the start and gauges of now, by name."""
        ...


class Env(Protocol):
    """One episode of one task: made, started, stepped until done, closed; never reset."""

    @staticmethod
    def tasks() -> Iterable[Task]:
        """Every task there is, in a fixed order; may be endless. Takes the same arguments as the constructor."""
        ...

    async def start(self, task: Task) -> Observation: ...

    async def step(self, message: Message) -> Observation: ...

    async def close(self) -> None: ...
