"""The run folder: numbers, events, checkpoints, rollouts and the report of one run."""

from turnwise.runs import breaks, checkpoint, report, rollouts, tokens
from turnwise.runs.drive import begin, drive
from turnwise.runs.folder import RunFolder
from turnwise.runs.resume import check_same

__all__ = ["RunFolder", "begin", "breaks", "check_same", "checkpoint", "drive", "report", "rollouts", "tokens"]
