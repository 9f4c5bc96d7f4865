"""Trajectories to token trees, rewards to advantages, and text of the environment to what echoes."""

from turnwise.trees.advantage import advantages
from turnwise.trees.merge import Tree, merge

__all__ = ["Tree", "advantages", "merge"]
