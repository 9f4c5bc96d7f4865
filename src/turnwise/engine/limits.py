"""What an engine may hold and how it shares its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

STALL_WORK = {"cpu": 2**35, "cuda": 2**45}
"""Multiplications of the weights with tokens read beside others that decode: about a third of a second."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one engine; None is without limit."""

    max_cache_bytes: int | None = None
    """All that keys, values and stored queries may take, growth and copies included."""
    max_cache_tokens: int | None = None
    """The same, said in columns of the cache; the smaller of the two counts."""
    max_sessions: int | None = None
    max_client_sessions: int | None = None
    max_running: int = 256
    """Steps that share forward passes; others queue."""
    max_queued: int | None = None
    idle_s: float | None = None
    """Sessions that nobody steps for so long are closed."""
    chunk_tokens: int = 8192
    """Tokens read in one forward pass while nobody decodes."""
    mixed_tokens: int | None = None
    """The same while others decode; None is what takes about a third of a second."""
    on_update: Literal["recompute", "keep", "drop"] = "recompute"
    """What becomes of live sessions when weights change: their caches are read again when they are next needed, stay as
    they are, or the sessions are closed."""
    threaded: bool = False
    """Compute in a thread, so that the event loop stays free: for servers. Weights change only while paused, then."""
    query_every: int = 1
    """Of how many tokens one has its queries stored, in sessions that are compacted."""

    def mixed(self, parameters: int, device: str) -> int:
        """Tokens that may be read in a forward pass beside others that decode."""
        if self.mixed_tokens is not None:
            return self.mixed_tokens
        return max(64, min(self.chunk_tokens, STALL_WORK[device] // parameters))
