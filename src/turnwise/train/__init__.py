"""Rows to an optimizer step."""

from turnwise.train.batch import batch
from turnwise.train.step import Trainer
from turnwise.train.tally import Tally

__all__ = ["Tally", "Trainer", "batch"]
