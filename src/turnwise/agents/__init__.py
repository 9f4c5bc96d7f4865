"""One episode, and all episodes of a step."""

from turnwise.agents.compaction import Plan, plan
from turnwise.agents.episode import play
from turnwise.agents.limits import Limits, Rules
from turnwise.agents.rollout import Batch, rollout
from turnwise.agents.sampling import sampling

__all__ = ["Batch", "Limits", "Plan", "Rules", "plan", "play", "rollout", "sampling"]
