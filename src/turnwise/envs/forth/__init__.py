"""Programs in a small Forth, written with tools."""

from turnwise.envs.forth.env import Forth

__all__ = ["Forth"]
