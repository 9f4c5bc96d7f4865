"""Any dataset of reasoning-gym, or a mix of several."""

from turnwise.envs.reasoning_gym.env import ReasoningGym

__all__ = ["ReasoningGym"]
