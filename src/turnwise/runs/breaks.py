"""Why prefixes broke in a run: counts by kind, each break with its place, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turnwise.runs.turns import break_of
from turnwise.types import Break, BreakKind

METRIC = "samples/prefix_mismatch/"
MENDS = {
    BreakKind.BOUNDARY: (
        "the template writes the marks between messages otherwise once more messages follow",
        "choose a renderer that bridges (`renderer`), or mend the template so that it only ever appends",
    ),
    BreakKind.RETOKENISED: (
        "the history was drawn again and encoded to other tokens than were sampled",
        "choose a renderer that bridges (`renderer`); an environment should answer with new messages only",
    ),
    BreakKind.THINKING_STRIPPED: (
        "the template takes the reasoning out of earlier replies",
        "choose a renderer that keeps it, or a template that does; else expect a branch at each such turn",
    ),
    BreakKind.TOOL_CALL_RENDERED: (
        "the history was drawn again, with other spaces or another order of keys in tool calls than were sampled",
        "choose a renderer that bridges (`renderer`), or teach the template the form in which the model writes calls",
    ),
    BreakKind.REWRITTEN: (
        "something changed the history and did not say so: a template that trims bodies, an environment or agent that "
        "edits or drops messages",
        "look at the text with `turnwise inspect RUN --breaks`; an agent that condenses should say so",
    ),
}
"""Kinds that are nobody's intention: the likely cause, and the mend."""


@dataclass(frozen=True, slots=True)
class Broken:
    """One turn that broke with what stood before it; `trajectory` is its place in the step."""

    step: int
    trajectory: int
    turn: int
    agent: str
    prefix: Break


def read(path: Path, step: int) -> tuple[list[Broken], Counter[str]]:
    """The breaks in a file of rollouts, in order, and how many turns of each kind there are, clean ones among them.

    Nothing but the breaks is read, so that a long run answers at once.
    """
    columns = [f"turns.list.element.{name}" for name in ("agent", "prefix")]
    with pq.ParquetFile(path) as file:
        lists = file.read(columns=columns)["turns"].combine_chunks()
    owner, turns = pc.list_parent_indices(lists).to_numpy(), lists.flatten()
    kinds = pc.struct_field(turns, ["prefix", "kind"])
    broke = pc.fill_null(pc.not_equal(kinds, BreakKind.CLEAN.value), False).to_numpy(zero_copy_only=False)
    firsts = np.searchsorted(owner, owner)
    found = [
        Broken(step, int(owner[n]), int(n - firsts[n]), row["agent"], break_of(row["prefix"]))
        for n, row in zip(np.flatnonzero(broke), turns.filter(pa.array(broke)).to_pylist(), strict=True)
    ]
    return found, Counter(kinds.drop_null().to_pylist())


def share(metrics: Mapping[str, float], kind: BreakKind) -> float:
    """The part of a step's turns, of those that had something to continue, that are of this kind."""
    turns = sum(metrics.get(f"{METRIC}{k}") or 0.0 for k in BreakKind)
    return (metrics.get(f"{METRIC}{kind}") or 0.0) / max(turns, 1.0)


def warnings(metrics: Mapping[str, float], threshold: float) -> dict[BreakKind, str]:
    """What to say of each kind that nobody meant and that passes `threshold`, a share of a step's turns."""
    over = {kind: part for kind in MENDS if (part := share(metrics, kind)) > threshold}
    return {kind: f"{part:.0%} of turns broke their prefix: {advice(kind)}" for kind, part in over.items()}


def advice(kind: BreakKind) -> str:
    """Kind, likely cause and mend in a sentence."""
    cause, mend = MENDS[kind]
    return f"{kind} (likely: {cause}). To mend it, {mend}"
