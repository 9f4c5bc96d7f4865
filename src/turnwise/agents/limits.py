"""Where an episode ends at the latest, and what becomes of replies that an environment may not expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnwise.config.run import EnvConfig


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an episode ends at the latest; summaries are no turns here."""

    turns: int
    tokens: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Rules:
    """What is done about a reply: `pass` hands it to the environment like any other, `end` ends the episode."""

    bad_call: Literal["pass", "answer", "end"] = "pass"
    """A tool call that cannot be read, names no tool there is, or has arguments that do not fit. `answer`: the model is
    told what was wrong in a tool message, and the environment sees the other calls only."""
    no_call: Literal["pass", "end"] = "pass"
    """A reply without any call where there are tools: the environment sees it in any case."""
    cut: Literal["pass", "end"] = "pass"
    """A reply that reached its longest length: the environment sees it in any case."""

    @staticmethod
    def of(env: EnvConfig) -> Rules:
        """What an environment's config says."""
        return Rules(env.on_bad_call, env.on_no_call, env.on_cut)
