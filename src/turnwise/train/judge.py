"""What others than the policy in training say of a row's tokens: scored once a step, before the first update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from turnwise.model import Policy
from turnwise.rows import Row
from turnwise.train.step import score_row
from turnwise.types import Floats


@dataclass(frozen=True, slots=True)
class Judges:
    """Who is asked, None for nobody: the policy before the step's updates, the model the run began with, a teacher."""

    start: Policy | None = None
    reference: Policy | None = None
    teacher: Policy | None = None


def judge(rows: Sequence[Row], judges: Judges) -> list[Row]:
    """The rows, their entries with the log-probabilities of all judges."""
    return [_judged(row, judges) for row in rows]


def _judged(row: Row, judges: Judges) -> Row:
    asked = {"start_logp": judges.start, "ref_logp": judges.reference, "teacher_logp": judges.teacher}
    rows = {"teacher_logp": row.whole()}  # a teacher has its own layers: it reads what there was to read
    said: dict[str, Any] = {name: _logp(p, rows.get(name, row)) for name, p in asked.items() if p is not None}
    return replace(row, entries=replace(row.entries, **said)) if said else row


@torch.no_grad()
def _logp(policy: Policy, row: Row) -> Floats:
    if not len(row.entries):
        return np.zeros(0, np.float32)
    logp: Floats = score_row(policy, row).logp_E.cpu().numpy()
    return logp
