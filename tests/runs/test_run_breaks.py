"""Breaks of a run: read from its rollouts, and warned of when they pass a share of the turns."""

from __future__ import annotations

from collections import Counter

import pytest

from played import played, turn
from turnwise.runs import breaks, rollouts
from turnwise.runs.breaks import MENDS, Broken, warnings
from turnwise.types import Break, BreakKind

STRIPPED = Break(BreakKind.THINKING_STRIPPED, 0, 2, "old", "new")
CONDENSED = Break(BreakKind.CONDENSED, 1, 0, "o", "n")


def clean(at: int) -> Break:
    return Break(BreakKind.CLEAN, 0, at)


def test_breaks_of_a_file_come_with_their_places_and_clean_turns_are_counted(tmp_path):
    one = [turn([1, 2], [3]), turn([1, 2, 3], [4], prefix=clean(3)), turn([1, 2, 9], [5], prefix=STRIPPED)]
    two = [turn([1, 2], [3]), turn([5], [4], prefix=CONDENSED, agent="solver")]
    rollouts.save(tmp_path / "r.parquet", 4, [played(*one), played(), played(*two)])
    found, counts = breaks.read(tmp_path / "r.parquet", 4)
    assert found == [Broken(4, 0, 2, "main", STRIPPED), Broken(4, 2, 1, "solver", CONDENSED)]
    assert counts == Counter(clean=1, thinking_stripped=1, condensed=1)


@pytest.mark.parametrize("trajectories", [[], [played()], [played(turn([1], [2]))]])
def test_a_file_without_breaks_has_none(tmp_path, trajectories):
    rollouts.save(tmp_path / "r.parquet", 1, trajectories)
    assert breaks.read(tmp_path / "r.parquet", 1) == ([], Counter())


def metrics(**kinds: float) -> dict[str, float]:
    return {f"{breaks.METRIC}{kind}": n for kind, n in kinds.items()}


def test_only_what_nobody_meant_is_warned_of_and_only_over_the_threshold():
    step = metrics(clean=60.0, thinking_stripped=20.0, retokenised=10.0, condensed=5.0, compacted=3.0, other_agent=2.0)
    assert list(warnings(step, 0.1)) == [BreakKind.THINKING_STRIPPED]
    assert list(warnings(step, 0.05)) == [BreakKind.RETOKENISED, BreakKind.THINKING_STRIPPED]
    assert warnings(step, 1.0) == warnings({}, 0.0) == {}
    assert "20% of turns" in warnings(step, 0.1)[BreakKind.THINKING_STRIPPED]


def test_every_kind_that_nobody_means_has_a_cause_and_a_mend():
    meant = {BreakKind.CLEAN, BreakKind.CONDENSED, BreakKind.COMPACTED, BreakKind.OTHER_AGENT}
    assert MENDS.keys() == set(BreakKind) - meant
    assert all(cause and mend for cause, mend in MENDS.values())
