"""What a run tells whoever watches it. The loop speaks to a Reporter and knows nothing of terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Reporter(Protocol):
    """Called from the loop, in this order: start, then progress, step and note as they come, then finish."""

    def start(self, title: str, lines: Sequence[str]) -> None:
        """The run begins: its name, and a few lines on what it will do."""
        ...

    def progress(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` pieces of a stage ("rollouts", "training") of the current step."""
        ...

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """Step `step` of `total` is over; held-out results come under eval/ keys, on some steps only."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
        ...

    def finish(self, lines: Sequence[str]) -> None:
        """The run is over: what came of it, the most telling line last."""
        ...


class Silent:
    """A Reporter that says nothing."""

    def start(self, title: str, lines: Sequence[str]) -> None: ...

    def progress(self, stage: str, done: int, total: int) -> None: ...

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None: ...

    def note(self, text: str) -> None: ...

    def finish(self, lines: Sequence[str]) -> None: ...
