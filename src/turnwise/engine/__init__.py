"""The built-in engine: sessions that keep their cache, decoded together."""

from turnwise.engine.local import LocalEngine

__all__ = ["LocalEngine"]
