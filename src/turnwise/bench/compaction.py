"""What compaction of the key/value cache costs in quality and time, on a real model and real text.

Of each text a prefix stays, a region is compacted, a suffix stays; the rest is then read with the whole cache and with
the compacted one. Cases are METHOD/QUERIES/RATIO, with /xN where N events strike as the text is read; `decode/N` is
the speed of N sessions in the engine, before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from turnwise.config.run import Count, Positive
from turnwise.config.section import Section

if TYPE_CHECKING:
    from turnwise.bench.report import Value

Method = Literal[
    "match", "match_3", "evict", "newest", "delete", "match_bias", "match_no_recent", "match_omp", "match_ragged"
]
Queries = Literal["own", "suffix", "context", "repeat", "keys", "gaussian"]
Ratio = Annotated[float, Field(gt=0.0, lt=1.0)]

FAST = {"per_slot": 3}
"""Few queries a slot: variants are compared so, against `match_3`."""
SETTINGS: dict[Method, dict[str, Any]] = {
    "match": {},
    "match_3": FAST,
    "evict": {"method": "evict", **FAST},
    "newest": {"method": "delete"},
    "delete": {"method": "delete"},
    "match_bias": {"bias": True, **FAST},
    "match_no_recent": {"recent": 0, **FAST},
    "match_omp": {"select": "omp", **FAST},
    "match_ragged": {"uniform": False, **FAST},
}
"""What makes each method, beside the ratio; `match` is the default, `newest` keeps
the newest of the region, `delete` nothing."""
BLIND = {"newest", "delete"}
"""Methods that ask no queries."""
AGAIN: tuple[Method, ...] = ("match_3", "evict", "delete")
"""Methods that are also measured over several events."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One case."""

    name: str
    method: Method
    queries: Queries
    ratio: float
    events: int = 1

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of turnwise.types.Settings."""
        ratio = "carry_ratio" if self.method in BLIND else "ratio"
        return {**SETTINGS[self.method], ratio: self.ratio}


class Options(Section):
    """What is measured, and on what."""

    model: str = "smollm2"
    """`smollm2`, `tiny` (random weights; seconds instead of minutes), a folder, or a hub name; in fp32 on the CPU."""
    texts: Positive = 4
    """Texts, of four kinds in turn; figures are means over them."""
    prefix: Positive = 128
    """Tokens before the region, which stay."""
    region: Positive = 1024
    """Tokens that are compacted."""
    suffix: Positive = 256
    """Tokens after the region, which stay."""
    continuation: Positive = 256
    """Tokens that are then read, on which the two caches are compared."""
    methods: list[Method] = ["match", "match_3", "evict", "newest", "delete", "match_bias", "match_no_recent"]
    """With the region's own queries, at every ratio."""
    queries: list[Queries] = ["own", "suffix", "context", "repeat", "keys", "gaussian"]
    """Sources of reference queries for `match_3`, at every ratio."""
    ratios: list[Ratio] = [0.5, 0.25, 0.1, 0.05]
    """Slots for each column."""
    events: list[Positive] = [2, 4]
    """Also compact so many times, as the text is read, by `match_3`, `evict`, `delete` at the second of the ratios."""
    sessions: Count = 16
    """Case `decode/N`: so many sessions decode together, before and after `match` at the second of the ratios; 0 leaves
    it out."""
    threads: Count = 0
    """CPU threads for torch; 0 leaves torch's own choice."""

    @property
    def middle(self) -> float:
        """The ratio of cases that are measured at one."""
        return self.ratios[min(1, len(self.ratios) - 1)]


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Value]]:
    """Measure every case on every text."""
    from turnwise.bench.compacted import measure

    return measure(options, plans(options), say)


def view(cases: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    """What fits on a terminal; speeds were told as they were measured."""
    shown = ("name", "kl", "nll_increase", "ms", "event_vs_forward", "peak_mb")
    return [{figure: case[figure] for figure in shown} for case in cases if "kl" in case]


def plans(options: Options) -> list[Plan]:
    """The cases, each once, in the order they are reported."""
    found = [_plan(method, "own", ratio) for method in options.methods for ratio in options.ratios]
    found += [_plan("match_3", queries, ratio) for queries in options.queries for ratio in options.ratios]
    again: list[Method] = [method for method in AGAIN if method in options.methods]
    found += [_plan(method, "own", options.middle, events) for method in again for events in options.events]
    return list(dict.fromkeys(found))


def _plan(method: Method, queries: Queries, ratio: float, events: int = 1) -> Plan:
    """What asks no queries is one case for all sources, and what keeps nothing one for all ratios."""
    asked, kept = "-" if method in BLIND else queries, 0.0 if method == "delete" else ratio
    name = f"{method}/{asked}/{kept:g}" + (f"/x{events}" if events > 1 else "")
    return Plan(name, method, "own" if method in BLIND else queries, kept, events)
