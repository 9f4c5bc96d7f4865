"""What was said and read in a batch of episodes: calls, characters and tokens, by role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from turnwise.agents.calls import calls_in
from turnwise.condense.ask import AGENT
from turnwise.text.content import text_of
from turnwise.types import Trajectory, Turn


def replies(trajectory: Trajectory) -> list[Turn]:
    """The turns without those in which summaries were written."""
    return [turn for turn in trajectory.turns if turn.agent != AGENT]


def read(trajectory: Trajectory) -> int:
    """Tokens that were read anew: what a prompt has in common with the turn it continues was read before."""
    return sum(len(turn.prompt_ids) - _known(turn) for turn in trajectory.turns)


def _known(turn: Turn) -> int:
    return min(turn.prefix.at, len(turn.prompt_ids)) if turn.prefix else 0


def tokens(trajectories: Sequence[Trajectory]) -> Counter[str]:
    """Tokens read anew by the role of their message, `scaffold` outside of any; and `sampled` ones."""
    found: Counter[str] = Counter()
    for turn in (turn for t in trajectories for turn in t.turns):
        found["sampled"] += len(turn.completion_ids)
        if turn.attribution is None:
            continue
        roles = (*turn.attribution.roles, "scaffold")  # message -1 is the last of them
        owners = turn.attribution.message[_known(turn) :]
        counts = np.bincount(np.where(owners < 0, len(roles) - 1, owners), minlength=len(roles))
        for role, n in zip(roles, counts.tolist(), strict=True):
            found[role] += n
    return Counter({role: n for role, n in sorted(found.items()) if n})


def chars(trajectories: Sequence[Trajectory]) -> Counter[str]:
    """Characters of all messages by role."""
    found: Counter[str] = Counter()
    for message in (message for t in trajectories for message in t.messages):
        found[str(message.get("role"))] += len(text_of(message))
    return Counter(dict(sorted(found.items())))


def calls(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Of episodes that were offered tools: calls an episode, and the share of replies that call, or that hold a call
    which cannot be read."""
    offered = [t for t in trajectories if "calls/faults" in t.metrics]
    if not offered:
        return {}
    said = [m for t in offered for m in t.messages if m.get("role") == "assistant"]
    failed = [m for m in said if m.get("failed_calls")]
    calling = [m for m in said if m.get("failed_calls") or calls_in(m)]
    made = sum(len(calls_in(m)) for m in said)
    return {
        "calls/made": made / len(offered),
        "calls/use_rate": len(calling) / max(len(said), 1),
        "calls/parse_failures": len(failed) / max(len(said), 1),
    }
