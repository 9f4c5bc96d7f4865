"""A hallway, at whose end only what was said at its beginning helps."""

from turnwise.envs.recall.env import Recall

__all__ = ["Recall"]
