"""Trees to packed rows, and rows to data-parallel ranks."""

from turnwise.rows.balance import balance, spread
from turnwise.rows.cost import Cost, pairs
from turnwise.rows.pack import Row, pack, weigh
from turnwise.rows.seen import Seen

__all__ = ["Cost", "Row", "Seen", "balance", "pack", "pairs", "spread", "weigh"]
