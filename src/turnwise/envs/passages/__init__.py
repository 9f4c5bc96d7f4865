"""Questions over many passages, most of which do not matter."""

from turnwise.envs.passages.env import Passages

__all__ = ["Passages"]
