"""What losses point at: sampled tokens with their numbers, echo tokens, and where a turn lies in a tree or row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.types.arrays import Floats, Ids, Names
from turnwise.types.chat import ECHO_ROLES
from turnwise.types.sampling import Support


@dataclass(frozen=True, slots=True)
class Entries:
    """Sampled tokens a loss points at, one entry for each trajectory that sampled one. Arrays [E].

    `at` is the sampled token's index in its tree or row and `source` the token that predicts it: not always at - 1,
    since a branch may begin at `at`. `trajectory` indexes the step's list of trajectories. The optional arrays are
    log-probabilities that others give the tokens: the trainer at the start of the step, a reference, a teacher; and
    the bonus that is already part of the advantage.
    """

    at: Ids
    source: Ids
    advantage: Floats
    sampler_logp: Floats
    temperature: Floats
    weight: Floats
    version: Ids
    trajectory: Ids
    turn: Ids
    support: Support
    start_logp: Floats | None = None
    ref_logp: Floats | None = None
    teacher_logp: Floats | None = None
    bonus: Floats | None = None

    def __len__(self) -> int:
        return len(self.at)

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Entries:
        """The entries at `index` (numbers or a mask), in that order."""
        places = np.arange(len(self))[index]
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "support"}
        taken: dict[str, Any] = {name: None if values is None else values[places] for name, values in arrays.items()}
        return Entries(**taken, support=self.support.take(places))

    @staticmethod
    def join(parts: Sequence[Entries]) -> Entries:
        """Concatenate; `at` and `source` must point into the same tokens already; all or none have optional arrays."""
        names = [f.name for f in fields(Entries) if f.name != "support"]
        columns = {name: [getattr(p, name) for p in parts] for name in names}
        arrays: dict[str, Any] = {name: None if c[0] is None else np.concatenate(c) for name, c in columns.items()}
        return Entries(**arrays, support=Support.join([p.support for p in parts]))


@dataclass(frozen=True, slots=True)
class Echo:
    """Tokens that are learnt by cross-entropy, each at most once for a group. Arrays [M], sorted by `source`.

    `at` is the token's index in its tree or row, `source` the token that predicts it. `alpha` is as configured and
    `weight` what its loss is multiplied by, `turn` of `trajectory` the turn that read it. `tool` is "" where no tool
    wrote it.
    """

    at: Ids
    source: Ids
    alpha: Floats
    weight: Floats
    trajectory: Ids
    turn: Ids
    role: Names
    tool: Names

    def __len__(self) -> int:
        return len(self.at)

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Echo:
        """The tokens at `index` (numbers or a mask), in that order."""
        return Echo(*(getattr(self, f.name)[index] for f in fields(self)))

    def moved(self, by: int) -> Echo:
        """The same tokens in a row where their tree begins at `by`."""
        return replace(self, at=self.at + np.int32(by), source=self.source + np.int32(by))

    def named(self) -> dict[str, NDArray[np.bool_]]:
        """Which tokens each role and each tool wrote; a tool that is called like a role stands as `tool:user`."""
        roles, tools = np.unique(self.role).tolist(), [t for t in np.unique(self.tool).tolist() if t]
        named = {f"tool:{t}" if t in ECHO_ROLES else t: self.tool == t for t in tools}
        return {role: self.role == role for role in roles} | named

    @staticmethod
    def join(parts: Sequence[Echo]) -> Echo:
        """Concatenate; `at` and `source` must point into the same tokens already."""
        listed = [Echo.none(), *parts]
        return Echo(*(np.concatenate([getattr(p, f.name) for p in listed]) for f in fields(Echo)))

    @staticmethod
    def none() -> Echo:
        ids, floats, names = np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.str_)
        return Echo(ids, ids, floats, floats, ids, ids, names, names)


@dataclass(frozen=True, slots=True)
class TurnPath:
    """Where the tokens of one turn, prompt then completion, lie in a tree or row: stretches [start, end), in order.

    A turn whose last token lies on another branch: spans [[0, 2], [5, 6]], at [0, 1, 5]. A path shorter than its turn
    was cut; what remains is its beginning.

    A turn whose text was read again after an event has a path in each of the trees that makes. Spans of a later one
    begin with so many tokens read `again`; then comes the turn's token `first`, which is context there.
    """

    trajectory: int
    turn: int
    spans: Ids
    first: int = 0
    again: int = 0

    def __len__(self) -> int:
        return max(int((self.spans[:, 1] - self.spans[:, 0]).sum()) - self.again, 0)

    @property
    def at(self) -> Ids:
        """The row of every token of the turn."""
        lengths = self.spans[:, 1] - self.spans[:, 0]
        before = np.cumsum(lengths, dtype=np.int32) - lengths
        at: Ids = np.arange(lengths.sum(), dtype=np.int32) + np.repeat(self.spans[:, 0] - before, lengths)
        return at[self.again :]

    @property
    def index(self) -> Ids:
        """Which token of the turn each of them is."""
        return np.arange(self.first, self.first + len(self), dtype=np.int32)

    def moved(self, by: int) -> TurnPath:
        """The same path in a row where the tree begins at `by`."""
        return replace(self, spans=self.spans + np.int32(by))
