"""Conversations gathered from episodes, and a model that learns from them what the assistant says."""

from turnwise.sft.gather import gather
from turnwise.sft.warm import warm

__all__ = ["gather", "warm"]
