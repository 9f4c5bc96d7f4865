"""Losses over entries: one pure function a file, found by the config's type."""

from turnwise.losses.choose import Loss, choose
from turnwise.losses.tokens import Result, Tokens

__all__ = ["Loss", "Result", "Tokens", "choose"]
