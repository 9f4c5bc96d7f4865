"""Trained tokens a second and peak memory of one optimizer step on recorded rollouts of many turns.

Three ways to the same loss: packed trees, one sample a turn, and TRL's GRPOTrainer. The model plays BabyAI once; every
variant reads that file, and none forwards more tokens at once than `row_tokens`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.config.run import Count, Positive
from turnwise.config.section import Section

if TYPE_CHECKING:
    from turnwise.bench.measure import Measured, Variant
    from turnwise.bench.report import Value

NAMES = ("turnwise", "per_turn", "trl")
"""Packed trees, one sample a turn, TRL: the first part of the names of their figures."""
FIGURES = ("tok_s", "tok_s_min", "tok_s_max", "peak_mb", "trained", "forwarded", "projected", "loss")
"""Of each variant: trained tokens a second, memory, how many tokens were trained, forwarded (padding included) and
projected on the vocabulary, and the loss of its first step."""


class Options(Section):
    """What is recorded and how often it is measured."""

    model: str = "smollm2"
    """`smollm2`, `tiny` (random weights; seconds instead of minutes), a folder, or a hub name; in fp32 on the CPU."""
    groups: Positive = 4
    """Tasks."""
    siblings: Positive = 4
    """Episodes of each task."""
    turns: Positive = 4
    """Turns of an episode, unless it is won earlier."""
    max_tokens: Positive = 12
    """Longest reply, in tokens."""
    row_tokens: Positive = 2048
    """Most tokens of one forward pass, padding included; a group has to fit in."""
    repeats: Positive = 3
    """Timed steps of each variant; the median counts."""
    warmup: Positive = 1
    """Steps before those, which also make the optimizer's state."""
    trl: bool = True
    """Measure TRL too, where it is installed."""
    threads: Count = 0
    """CPU threads for torch; 0 leaves torch's own choice."""
    seed: int = 0
    """Seed of tasks and replies."""


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Value]]:
    """Record, measure, and return one case."""
    from turnwise.bench.measure import measure
    from turnwise.bench.record import record
    from turnwise.bench.report import installed

    o = options
    if o.trl and installed("trl") is None:
        say("TRL is not installed, so it is not measured: `make bench` installs it")
    with tempfile.TemporaryDirectory(prefix="turnwise-bench-") as folder:
        say(f"recording {o.groups} groups of {o.siblings} episodes of {o.turns} turns with {o.model}")
        path, model = record(Path(folder), o.model, o.groups, o.siblings, o.turns, o.max_tokens, o.seed)
        measured = measure(_variants(options, path, model), o.repeats, o.warmup, say)
    return [case(o.model, measured)]


def view(cases: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    """The same figures for the terminal, a column a variant; `slower` says how many times turnwise is faster."""
    return [{"name": variant, **_column(case, variant)} for case in cases for variant in NAMES]


def _column(case: Mapping[str, Value], variant: str) -> dict[str, Value]:
    found = {key.removeprefix(f"{variant}_"): case[key] for key in case if key in _names(variant)}
    return found | {"slower": case.get(f"vs_{variant}"), "loss_rel_diff": case.get(_difference_name(variant))}


def _variants(options: Options, path: Path, model: str) -> list[Variant]:
    """Ours, and TRL where it is installed."""
    from turnwise.bench import steps, trl
    from turnwise.bench.measure import Variant
    from turnwise.bench.report import installed

    work = steps.Work(path, model, options.row_tokens, options.threads)
    makers = dict(zip(NAMES, (steps.trees, steps.turns, trl.trl), strict=True))
    peer = options.trl and installed("trl")
    return [Variant(name, make, (work,)) for name, make in makers.items() if name != "trl" or peer]


def case(name: str, measured: Mapping[str, Measured]) -> dict[str, Value]:
    """All figures under stable names; those of a variant that was not measured are null."""
    from turnwise.bench.report import installed

    figures: dict[str, Value] = {"name": name, "trl_version": installed("trl") if "trl" in measured else None}
    for variant in NAMES:
        found = measured.get(variant)
        figures |= dict(zip(_names(variant), _values(found) if found else [None] * len(FIGURES), strict=True))
    for other in NAMES[1:]:
        figures[f"vs_{other}"] = _ratio(figures["turnwise_tok_s"], figures[f"{other}_tok_s"])
        figures[_difference_name(other)] = _difference(measured, other, "loss")
    return figures | {"grad_norm_rel_diff": _difference(measured, "trl", "grad_norm")}


def _names(variant: str) -> list[str]:
    return [f"{variant}_{figure}" for figure in FIGURES]


def _difference_name(variant: str) -> str:
    """The one that matters has the short name."""
    return "loss_rel_diff" if variant == "trl" else f"{variant}_loss_rel_diff"


def _values(found: Measured) -> list[float]:
    """In the order of FIGURES."""
    trained, (fast, slow) = found.median("trained"), found.spread("seconds")
    speeds = [trained / seconds for seconds in (found.median("seconds"), slow, fast)]
    counts = [found.median(name) for name in ("trained", "forwarded", "projected")]
    return [*speeds, found.peak_mb, *counts, found.warmup[0]["loss"]]


def _ratio(ours: Value, theirs: Value) -> float | None:
    return ours / theirs if isinstance(ours, float) and isinstance(theirs, float) else None


def _difference(measured: Mapping[str, Measured], other: str, figure: str) -> float | None:
    """|a - b| / |a| at the first step, where all variants have the same weights."""
    if other not in measured:
        return None
    a, b = (measured[name].warmup[0][figure] for name in ("turnwise", other))
    return abs(a - b) / abs(a)
