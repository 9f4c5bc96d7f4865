"""Many conversations at once against a real `turnwise serve`, with clients that cancel, hang up and read slowly.

Of each turn a client gives up on, it asks again. Held afterwards: only documented statuses, memory under its budget
throughout, and the tokens of every completed conversation equal to those of a quiet run under the same seeds, but for
draws that fall within rounding of the border between two tokens: `near_ties` counts those of both runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from turnwise.config.run import Count, Fraction, Positive
from turnwise.config.section import Section

if TYPE_CHECKING:
    from turnwise.bench.report import Value


class Options(Section):
    """What is asked of the server, and how badly its clients behave."""

    model: str = "tiny"
    """`tiny` (random weights), `smollm2`, a folder, or a hub name; in fp32 on the CPU."""
    sessions: Positive = 200
    """Conversations, all begun at once."""
    turns: Positive = 5
    """Turns of each."""
    read: Positive = 40
    """New tokens read a turn."""
    write: Positive = 24
    """Tokens sampled a turn."""
    harm: Fraction = 0.3
    """Share of turns in which a client first cancels, hangs up or reads slowly."""
    seconds: Annotated[float, Field(gt=0.0)] = 180.0
    """After so long no further turn is begun."""
    max_cache_mb: Positive = 4
    """The server's budget: small, so that conversations have to make room for each other."""
    threads: Count = 1
    """CPU threads of the server; 0 leaves torch's own choice."""
    seed: int = 0
    """Seed of prompts, replies and bad behaviour."""


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Value]]:
    """Load, then quiet, and one case of figures."""
    from turnwise.bench.loaded import measure

    return measure(options, say)


def view(cases: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    """All of it fits on a terminal."""
    return [dict(case) for case in cases]
