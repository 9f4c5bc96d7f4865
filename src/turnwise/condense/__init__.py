"""Histories rewritten as shorter text: when, which pieces, by whom, and how the agent opens them again."""

from turnwise.condense.history import History, Rewritten
from turnwise.condense.plan import Condensation, condensation
from turnwise.condense.shared import Shared

__all__ = ["Condensation", "History", "Rewritten", "Shared", "condensation"]
