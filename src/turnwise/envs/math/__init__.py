"""Problems whose answer is a number."""

from turnwise.envs.math.env import Math

__all__ = ["Math"]
