"""The built-in engine: sessions that keep their cache, decoded together."""

from turnwise.engine.limits import Limits
from turnwise.engine.local import LocalEngine

__all__ = ["Limits", "LocalEngine"]
