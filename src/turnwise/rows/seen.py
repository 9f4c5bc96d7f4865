"""A row and what the trainer found when it read it, token by token: what the token export is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnwise.rows.pack import Row
from turnwise.types import Floats


@dataclass(frozen=True, slots=True)
class Seen:
    """`numbers` hold one value an entry of the row [E], by name: `trainer_logp`, `entropy`, a loss's masks, ...; of a
    row read for its echo they are empty, and `echo_logp` holds one value an echo token [M]."""

    row: Row
    numbers: Mapping[str, Floats]
    echo_logp: Floats | None = None
