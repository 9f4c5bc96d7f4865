"""What was sampled along the paths of a tree under construction, and the entries it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.trees.layout import joined
from turnwise.trees.legs import Leg
from turnwise.types import Entries, Ids, Support, Turn

Path = Sequence[tuple[int, int]]
"""Stretches [start, end) of the store."""


@dataclass(slots=True)
class Sampled:
    """One leg of a turn: where its last token and what was sampled in it, as `said` counts the completion, lie."""

    last: int
    at: Ids
    said: NDArray[np.intp]
    turn: Turn
    trajectory: int
    index: int
    first: int
    again: int

    @staticmethod
    def of(path: Path, leg: Leg, turn: Turn, trajectory: int, index: int) -> Sampled:
        """A leg that lies along `path`; what was injected nobody sampled."""
        start, end = _said(turn, leg)
        kept = np.arange(start, end)
        if turn.injected is not None:
            kept = kept[~turn.injected[start:end]]
        at = _tail(path, end - start)[kept - start]
        return Sampled(path[-1][1] - 1, at, kept, turn, trajectory, index, leg.first, leg.again)


def _said(turn: Turn, leg: Leg) -> tuple[int, int]:
    """Which of the completion's tokens were drawn in a leg: with 4 read, 3 written and a leg of tokens 5, 6: 2 to 3."""
    prompt, begin = len(turn.prompt_ids), leg.first + int(leg.first > 0)
    end = leg.first + len(leg.ids) - leg.again
    return max(begin - prompt, 0), max(end - prompt, 0)


def _tail(path: Path, length: int) -> Ids:
    """The last indices of a path: of (0, 3), (7, 9) the last three are 2, 7, 8."""
    start, end = path[-1]
    if length <= end - start:
        return np.arange(end - length, end, dtype=np.int32)
    return np.concatenate([np.arange(a, b, dtype=np.int32) for a, b in path])[-length:]


def entries_of(sampled: Sequence[Sampled]) -> Entries:
    """One entry for every token of every turn, in the order they were sampled; `at` points into the store."""
    turns = [s.turn for s in sampled]
    lengths = [len(s.at) for s in sampled]

    def spread(values: Sequence[float], dtype: type) -> np.ndarray:
        return np.repeat(np.array(values, dtype), lengths)

    at = joined([s.at for s in sampled])
    floats = np.zeros(len(at), np.float32)
    return Entries(
        at=at,
        source=at - 1,
        advantage=floats.copy(),
        sampler_logp=np.concatenate([floats[:0], *(s.turn.logprobs[s.said] for s in sampled)]),
        temperature=spread([t.temperature for t in turns], np.float32),
        weight=floats + 1,
        version=joined([s.turn.policy_versions[s.said] for s in sampled]),
        trajectory=spread([s.trajectory for s in sampled], np.int32),
        turn=spread([s.index for s in sampled], np.int32),
        support=_supports(sampled, len(at)),
    )


def _supports(sampled: Sequence[Sampled], tokens: int) -> Support:
    if all(s.turn.support is None for s in sampled):
        return Support.whole(tokens)
    return Support.join([_support(s) for s in sampled])


def _support(s: Sampled) -> Support:
    if s.turn.support is None:
        return Support.whole(len(s.said))
    return s.turn.support if len(s.said) == len(s.turn.completion_ids) else s.turn.support.take(s.said)


def once(entries: Entries, size: int) -> NDArray[np.intp]:
    """What a trajectory sampled twice over the same prefix counts once, by its first turn."""
    place = entries.trajectory.astype(np.int64) * size + entries.at
    if (np.diff(place) > 0).all():
        return np.arange(len(place))
    return np.sort(np.unique(place, return_index=True)[1])
