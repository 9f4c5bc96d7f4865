"""Environments: found by name, their tasks split into a train and a held-out side."""

from turnwise.envs.find import find
from turnwise.envs.tasks import TaskSet

__all__ = ["TaskSet", "find"]
