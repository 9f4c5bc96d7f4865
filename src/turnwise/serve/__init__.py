"""The HTTP server over an engine."""

from turnwise.serve.app import make

__all__ = ["make"]
