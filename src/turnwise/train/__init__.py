"""Rows to an optimizer step."""

from turnwise.train.batch import batch
from turnwise.train.judge import Judges, judge
from turnwise.train.learn import learn
from turnwise.train.oracle import Oracle
from turnwise.train.silence import Silence
from turnwise.train.step import Trainer
from turnwise.train.tally import Tally

__all__ = ["Judges", "Oracle", "Silence", "Tally", "Trainer", "batch", "judge", "learn"]
