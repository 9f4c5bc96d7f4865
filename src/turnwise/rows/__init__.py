"""Trees to packed rows."""

from turnwise.rows.pack import Row, pack, weigh
from turnwise.rows.seen import Seen

__all__ = ["Row", "Seen", "pack", "weigh"]
