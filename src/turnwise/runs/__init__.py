"""The run folder: numbers, events, checkpoints, rollouts and the report of one run."""

from turnwise.runs import checkpoint, report, rollouts
from turnwise.runs.folder import RunFolder

__all__ = ["RunFolder", "checkpoint", "report", "rollouts"]
