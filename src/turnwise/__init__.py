"""Turnwise trains language-model agents by reinforcement learning over many turns, exact to the token."""

__version__ = "0.1.0"
