"""One episode, and all episodes of a step."""

from turnwise.agents.compaction import Plan, plan
from turnwise.agents.episode import Limits, play
from turnwise.agents.rollout import Batch, rollout
from turnwise.agents.sampling import sampling

__all__ = ["Batch", "Limits", "Plan", "plan", "play", "rollout", "sampling"]
