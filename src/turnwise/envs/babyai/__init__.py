"""MiniGrid and BabyAI levels played through text."""

from turnwise.envs.babyai.env import Babyai

__all__ = ["Babyai"]
