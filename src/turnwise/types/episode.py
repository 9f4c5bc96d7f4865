"""Tasks, what environments say, and the trajectory an episode leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from turnwise.types.chat import Message, Tool
from turnwise.types.turn import Turn


class EpisodeStop(StrEnum):
    """Why an episode ended."""

    DONE = "done"
    NO_TOOL_CALL = "no_tool_call"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    LENGTH = "length"
    OVERLONG = "overlong"
    PARSE_ERROR = "parse_error"
    ENV_ERROR = "env_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    ENGINE_ERROR = "engine_error"


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to solve. `key` is stable and unique; the train/held-out split hashes it, or `split` where many tasks
    have to stay on one side together."""

    key: str
    data: Mapping[str, Any] = field(default_factory=dict)
    split: str | None = None


@dataclass(slots=True)
class Observation:
    """What an environment says: new messages, the reward of the last action, and whether the episode is over.

    `oracle`, said at the start if ever, is what the policy is not told: messages that make the task easy. `extra` is
    anything else worth keeping: `env.save_columns` names what of it goes into the rollouts table.
    """

    messages: list[Message] = field(default_factory=list)
    tools: list[Tool] | None = None
    reward: float = 0.0
    done: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    oracle: list[Message] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Trajectory:
    """The turns of one episode. `group` numbers the task within its step, `sibling` the attempt at it.

    `messages` is all that was said; what the policy read of it, where its history was rewritten, stands in the turns.
    `extra` is what the environment offered for columns of its own, and is not saved otherwise.
    """

    env: str
    task: Task
    group: int
    sibling: int
    seed: int
    turns: list[Turn] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    reward: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    stop_reason: EpisodeStop = EpisodeStop.DONE
    error: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    oracle: list[Message] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def sampled_tokens(self) -> int:
        return sum(t.sampled_tokens for t in self.turns)
