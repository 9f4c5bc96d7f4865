"""From the trainer's weights to the engine's, one file a medium."""

from turnwise.weights.memory import publish

__all__ = ["publish"]
