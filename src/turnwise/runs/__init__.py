"""The run folder: numbers, events, checkpoints, rollouts and the report of one run."""

from turnwise.runs import checkpoint, report, rollouts
from turnwise.runs.folder import RunFolder
from turnwise.runs.resume import check_same

__all__ = ["RunFolder", "check_same", "checkpoint", "report", "rollouts"]
