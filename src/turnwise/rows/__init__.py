"""Trees to packed rows."""

from turnwise.rows.pack import Row, pack, weigh

__all__ = ["Row", "pack", "weigh"]
