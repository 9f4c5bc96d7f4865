"""Ctrl-C during a run: the first asks the loop to stop after this step, the second stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SOON = "finishing this step, then saving; Ctrl-C again to stop at once"


@contextmanager
def stoppable(note: Callable[[str], None], soon: str = SOON) -> Iterator[threading.Event]:
    """Yields the flag that the first Ctrl-C sets; the handler that was there before comes back at the end."""
    stop = threading.Event()

    def interrupted(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        note(soon)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
