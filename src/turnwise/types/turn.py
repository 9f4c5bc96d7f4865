"""One model call: what it read, what it wrote, and how its prompt continues what stood before."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from turnwise.types.arrays import Floats, Ids
from turnwise.types.compaction import Event
from turnwise.types.sampling import Sampled, Support, Top, TurnStop


@dataclass(frozen=True, slots=True)
class Completion:
    """What one engine step sampled. Arrays are [C]; `logprobs` are of the distribution that was drawn from; `events`
    are all the session has seen so far, in order.

    `stopped_by` is the stop token or stop string that ended it; `top` holds one tuple a token where
    `top_logprobs` asked for them. `injected` [C] marks tokens of notices, which nobody sampled, if any.
    """

    ids: Ids
    logprobs: Floats
    policy_versions: Ids
    stop_reason: TurnStop
    support: Support | None = None
    events: tuple[Event, ...] = ()
    stopped_by: int | str | None = None
    top: tuple[Top, ...] = ()
    injected: NDArray[np.bool_] | None = None

    @property
    def heard(self) -> list[Sampled]:
        """Its tokens, as a listener hears of them."""
        tops = self.top or ((),) * len(self.ids)
        each = zip(self.ids.tolist(), self.logprobs.tolist(), self.policy_versions.tolist(), tops, strict=True)
        return [Sampled(*one) for one in each]


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who wrote each prompt token. `message` [P] indexes `roles` and `tools`, -1 is scaffold outside any message;
    `body` [P] is 1 for message text, 0 for template scaffold, -1 where the renderer cannot tell."""

    message: NDArray[np.int32]
    body: NDArray[np.int8]
    roles: tuple[str, ...]
    tools: tuple[str | None, ...]


class BreakKind(StrEnum):
    """How the prompt of a turn continues what stood before it."""

    CLEAN = "clean"
    """It begins with everything so far."""
    BOUNDARY = "boundary"
    """Only scaffold between messages differs."""
    RETOKENISED = "retokenised"
    """The same text in other tokens."""
    THINKING_STRIPPED = "thinking_stripped"
    """Earlier reasoning is gone, and nothing else."""
    TOOL_CALL_RENDERED = "tool_call_rendered"
    """Tool calls mean the same and are written otherwise."""
    CONDENSED = "condensed"
    """The agent rewrote its history and said so."""
    COMPACTED = "compacted"
    """The same tokens, but an event struck their keys and values."""
    OTHER_AGENT = "other_agent"
    """It begins, or continues, another conversation than its agent's own."""
    REWRITTEN = "rewritten"
    """None of these."""


@dataclass(frozen=True, slots=True)
class Break:
    """How a prompt continues the tokens of turn `turn` of its trajectory: they are equal before token `at`.

    `old` and `new` are the text around `at`, empty where nothing differs; of retokenised text they show the borders
    of tokens, as in "go for|ward".
    """

    kind: BreakKind
    turn: int
    at: int
    old: str = ""
    new: str = ""


@dataclass(slots=True)
class Turn:
    """One model call: what it read [P] and what it wrote [C]; `events` are all that struck the two, in order.

    `prefix` says how the prompt continues what stood before; None where nothing did. `injected` [C] marks tokens of the
    completion that were told and not sampled.
    """

    prompt_ids: Ids
    completion_ids: Ids
    logprobs: Floats
    policy_versions: Ids
    stop_reason: TurnStop
    attribution: Attribution | None = None
    support: Support | None = None
    events: tuple[Event, ...] = ()
    temperature: float = 1.0
    agent: str = "main"
    reward: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    prefix: Break | None = None
    injected: NDArray[np.bool_] | None = None

    @staticmethod
    def of(prompt_ids: Ids, done: Completion, temperature: float = 1.0, attribution: Attribution | None = None) -> Turn:
        """What an engine answered to a prompt."""
        return Turn(
            prompt_ids=prompt_ids,
            completion_ids=done.ids,
            logprobs=done.logprobs,
            policy_versions=done.policy_versions,
            stop_reason=done.stop_reason,
            attribution=attribution,
            support=done.support,
            events=done.events,
            temperature=temperature,
            injected=done.injected,
        )

    @property
    def ids(self) -> Ids:
        """Prompt and completion."""
        return np.concatenate([self.prompt_ids, self.completion_ids])

    @property
    def sampled_tokens(self) -> int:
        """Tokens of the completion that the policy drew."""
        return len(self.completion_ids) - (0 if self.injected is None else int(self.injected.sum()))
