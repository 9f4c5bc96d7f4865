"""Turns whose parts do not fit together are refused before they are merged: which turn, what was found, what expected.

Numbers are looked at all at once and not turn by turn, so that checking costs less than merging.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from turnwise.errors import DataError
from turnwise.types import Support, Trajectory, Turn

ROUNDING = 1e-3
"""A log-probability may lie so far above 0: that of a certain token, computed in few bits."""

Named = tuple[str, Turn]
"""A turn and how an error calls it."""


def check(trajectories: Sequence[Trajectory]) -> None:
    """Raise DataError for the first turn that cannot be trained on as it stands."""
    turns = [(f"trajectory {i}, turn {n}", turn) for i, t in enumerate(trajectories) for n, turn in enumerate(t.turns)]
    for name, turn in turns:
        _kinds(name, turn)
        _lengths(name, turn)
    if turns:
        _logprobs(turns)
        _versions(turns)
        _supports([(name, turn) for name, turn in turns if turn.support is not None])


def refuse_negative(trajectories: Sequence[Trajectory]) -> None:
    """Name the turn with a negative token id; merging sees that there is one for next to nothing."""
    for i, trajectory in enumerate(trajectories):
        for n, turn in enumerate(trajectory.turns):
            for part, ids in (("prompt", turn.prompt_ids), ("sampled", turn.completion_ids)):
                if len(ids) and ids.min() < 0:
                    place = int((ids < 0).argmax())
                    _refuse(f"trajectory {i}, turn {n}", f"id {ids[place]} at {part} token {place}", "ids of 0 or more")


def _refuse(name: str, found: str, expected: str) -> NoReturn:
    raise DataError(f"{name}: found {found}; expected {expected}")


def _kinds(name: str, turn: Turn) -> None:
    """Flat arrays of the types that the rest computes with."""
    for part, kind in KINDS.items():
        values = getattr(turn, part)
        if not isinstance(values, np.ndarray) or values.dtype != kind or values.ndim != 1:
            shape = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            _refuse(name, f"{part} as {shape}", f"a flat array of {np.dtype(kind)}")


KINDS = {
    "prompt_ids": np.dtype(np.int32),
    "completion_ids": np.dtype(np.int32),
    "logprobs": np.dtype(np.float32),
    "policy_versions": np.dtype(np.int32),
}


def _lengths(name: str, turn: Turn) -> None:
    prompt, sampled = len(turn.prompt_ids), len(turn.completion_ids)
    supports = sampled if turn.support is None else len(turn.support.offsets) - 1
    if not prompt or not sampled == len(turn.logprobs) == len(turn.policy_versions) == supports:
        _refuse(
            name,
            f"{prompt} prompt tokens, {sampled} sampled tokens, {len(turn.logprobs)} log-probabilities, "
            f"{len(turn.policy_versions)} versions, {supports} supports",
            "a prompt, and one log-probability, version and support (if any) for each sampled token",
        )
    who = turn.attribution
    if who is not None and not prompt == len(who.message) == len(who.body):
        found = f"an attribution of {len(who.message)} messages and {len(who.body)} bodies for {prompt} prompt tokens"
        _refuse(name, found, "one of each for every prompt token")


def _logprobs(turns: Sequence[Named]) -> None:
    values = np.concatenate([turn.logprobs for _, turn in turns])
    bad = ~((values <= ROUNDING) & (values > -np.inf))  # NaN is neither
    if bad.any():
        name, place = _blamed(turns, bad)
        found = f"log-probability {values[bad][0]} at sampled token {place}"
        _refuse(name, found, "a finite one, 0 or below: the sampler's own, of the distribution it drew from")


def _versions(turns: Sequence[Named]) -> None:
    values = np.concatenate([turn.policy_versions for _, turn in turns])
    if len(values) and values.min() < 0:
        name, place = _blamed(turns, values < 0)
        _refuse(name, f"policy version {values[values < 0][0]} at sampled token {place}", "0 or more optimizer steps")


def _supports(turns: Sequence[Named]) -> None:
    """Every slice that is not empty holds the token that was drawn from it."""
    if not turns:
        return
    for name, turn in turns:
        offsets, size = turn.support.offsets, len(turn.support.ids)  # type: ignore[union-attr]
        if offsets[0] != 0 or offsets[-1] != size or (np.diff(offsets) < 0).any():
            _refuse(name, f"support offsets {offsets.tolist()} over {size} ids", "offsets that grow from 0 to that")
    support = Support.join([turn.support for _, turn in turns if turn.support is not None])
    tokens = np.concatenate([turn.completion_ids for _, turn in turns])
    lengths = np.diff(support.offsets)
    which = np.repeat(np.arange(len(tokens)), lengths)
    held = np.bincount(which[support.ids == tokens[which]], minlength=len(tokens))
    bad = (held == 0) & (lengths > 0)
    if bad.any():
        name, place = _blamed(turns, bad)
        found = f"token {tokens[bad][0]} sampled at {place} from a support of {lengths[bad][0]} that does not hold it"
        _refuse(name, found, "the tokens that could have been drawn, the one that was among them")


def _blamed(turns: Sequence[Named], bad: NDArray[np.bool_]) -> tuple[str, int]:
    """Whose the first bad sampled token is, and its place in that turn."""
    ends = np.cumsum([len(turn.completion_ids) for _, turn in turns])
    first = int(bad.argmax())
    number = int(np.searchsorted(ends, first, side="right"))
    return turns[number][0], first - int(ends[number] - len(turns[number][1].completion_ids))
