"""What of a session stands in the pool: which token each column is, and what has to be read before the next draw."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from turnwise.engine.pool import Extent

UNREAD = -1
"""The version of a cache that is empty."""

Numbers = NDArray[np.int64]


def _none() -> Numbers:
    return np.zeros(0, np.int64)


@dataclass(slots=True, eq=False)
class Cached:
    """The columns of a session: those that stood after its last event, then one for each token read since.

    Tokens 0..9 of which an event at 8 made 2..7 one slot: head_M is [0, 1, -1], `at` 8, and with ten tokens written
    there are five columns. A slot is token -1.
    """

    extent: Extent
    queries: Extent | None = None
    version: int = UNREAD
    """Of the weights its oldest keys were computed with."""
    written: int = 0
    """Tokens of the session that have been read; an event may have taken their columns since."""
    struck: int = 0
    """Events of the session that this cache has undergone."""
    at: int = 0
    head_M: Numbers = field(default_factory=_none)
    place_M: Numbers = field(default_factory=_none)
    """Positions of the head's tokens."""
    shift: int = 0
    """How far positions lag behind tokens, since a text was read again."""
    missing: int = 0
    """Columns of the head, its last ones, that are being read again."""
    biased: bool = False

    @property
    def columns(self) -> int:
        return len(self.head_M) - self.missing + self.written - self.at

    @property
    def tokens_M(self) -> Numbers:
        """The token of each column; -1 is a slot."""
        return np.concatenate([self.head_M[: len(self.head_M) - self.missing], np.arange(self.at, self.written)])

    @property
    def places_M(self) -> Numbers:
        """The position each column's token was rotated to."""
        head = self.place_M[: len(self.place_M) - self.missing]
        return np.concatenate([head, np.arange(self.at, self.written) - self.shift])

    @property
    def plain(self) -> int:
        """Leading columns that are the session's first tokens, as any session with these would have them."""
        if self.shift or self.missing:
            return 0
        same = self.head_M == np.arange(len(self.head_M))
        return self.written if same.all() else int(np.argmin(same))

    def asked(self, every: int) -> NDArray[np.bool_]:
        """Which columns have a stored query, one of `every` tokens; they stand in the order of the columns."""
        tokens = self.tokens_M
        wanted: NDArray[np.bool_] = (tokens >= 0) & (tokens % every == 0)
        return wanted

    def cut(self, tokens: int) -> bool:
        """Forget what was read after so many tokens; False where an event has struck since, so that it cannot."""
        if tokens < self.at or self.missing:
            return False
        self.written = min(self.written, tokens)
        return True

    def twin(self, extent: Extent, queries: Extent | None) -> Cached:
        """The same columns elsewhere."""
        return replace(self, extent=extent, queries=queries)

    def read(self, count: int, version: int) -> None:
        """So many new columns have been written, under these weights."""
        self.version = version if self.version == UNREAD else self.version
        if self.missing:
            self.missing -= count
        else:
            self.written += count
