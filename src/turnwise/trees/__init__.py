"""Trajectories to token trees, and rewards to advantages."""

from turnwise.trees.advantage import advantages
from turnwise.trees.merge import Tree, merge

__all__ = ["Tree", "advantages", "merge"]
