"""How tokens are drawn, and what is told of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from turnwise.types.arrays import Ids


class TurnStop(StrEnum):
    """Why sampling of one turn ended."""

    STOP = "stop"
    """A stop token or the end of a stop string was sampled (it is part of the completion)."""
    LENGTH = "length"
    """`max_tokens` were sampled without a stop."""
    DEADLINE = "deadline"
    """The step's time was over; what was sampled by then counts."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn; `choices` are the only completions allowed, as tokens, stop token included.

    `stop` are strings that end a completion once its text holds one, wherever token borders fall. `logit_bias` is added
    to the logits of some tokens: (id, bias). `top_logprobs` asks for so many likeliest tokens beside each sampled one.
    """

    temperature: float = 1.0
    max_tokens: int = 256
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()
    stop: tuple[str, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int = 0

    @property
    def restricted(self) -> bool:
        """Whether some tokens can never be drawn, so that a support has to be recorded."""
        return bool(self.choices) or self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Support:
    """The token ids that could have been drawn, for each sampled token: ids[offsets[c]:offsets[c + 1]].

    An empty slice means the whole vocabulary.
    """

    ids: Ids
    offsets: Ids

    def of(self, c: int) -> Ids:
        return self.ids[self.offsets[c] : self.offsets[c + 1]]

    def take(self, places: NDArray[np.intp]) -> Support:
        """The slices of some tokens, in that order."""
        lengths = np.diff(self.offsets)[places]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Support(self.ids[np.repeat(self.offsets[places], lengths) + inside], offsets)

    @staticmethod
    def join(parts: Sequence[Support]) -> Support:
        """One support for the tokens of several, in order."""
        ends = np.cumsum([0, *(p.offsets[-1] for p in parts)])
        offsets = [p.offsets[1:] + end for p, end in zip(parts, ends, strict=False)]
        return Support(
            np.concatenate([*(p.ids for p in parts), np.zeros(0, np.int32)]).astype(np.int32),
            np.concatenate([np.zeros(1, np.int32), *offsets]).astype(np.int32),
        )

    @staticmethod
    def whole(tokens: int) -> Support:
        """No restriction on any of so many tokens."""
        return Support(np.zeros(0, np.int32), np.zeros(tokens + 1, np.int32))

    @staticmethod
    def stack(slices: Sequence[Ids]) -> Support:
        """Flatten one id array a token: stack([[4, 7], [], [9]]) has ids [4, 7, 9], offsets [0, 2, 2, 3]."""
        offsets = np.zeros(len(slices) + 1, np.int32)
        np.cumsum([len(s) for s in slices], out=offsets[1:])
        return Support(np.concatenate([*slices, np.zeros(0, np.int32)]).astype(np.int32), offsets)


Top = tuple[tuple[int, float], ...]
"""The likeliest tokens and their log-probabilities, likeliest first."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One token of a step under way, as a listener hears of it."""

    id: int
    logprob: float
    policy_version: int
    top: Top = ()


Listener = Callable[[Sampled], None]
"""Called for each token in order, on the event loop, before the step returns; it must not block."""
