"""Seconds and peak memory of one optimizer step on histories that break or share a prompt: as packed trees, and as
samples cut at every break. Both train the same tokens; `grad_rel_diff` says how far apart their gradients are.

Tokens are made up; what the sampler is taken to have said of them is scored by the model first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.config.run import Count, Positive
from turnwise.config.section import Section

if TYPE_CHECKING:
    from turnwise.bench.histories import Shape
    from turnwise.bench.measure import Measured
    from turnwise.bench.report import Value
    from turnwise.bench.steps import Work

NAMES = ("trees", "cut")
"""Packed trees, cut at every break: the first part of the names of their figures."""
FIGURES = ("seconds", "seconds_min", "seconds_max", "peak_mb", "trained", "forwarded", "projected", "loss")
"""Of each: time and memory, how many tokens were trained, forwarded and projected on the vocabulary, and the loss of
the first step."""


class Options(Section):
    """The histories, scaled down so that two cores need minutes, and how often a step is measured."""

    model: str = "smollm2"
    """`smollm2`, `tiny` (random weights; seconds instead of minutes), a folder, or a hub name; in fp32 on the CPU."""
    trajectories: Positive = 4
    """Episodes of the case `drift`, and siblings that share a prompt in `group`."""
    turns: Positive = 6
    """Turns of an episode; half of them in `group`."""
    first: Positive = 96
    """Tokens of the first prompt; in `group` 400."""
    read: Positive = 36
    """Tokens that each later turn reads anew."""
    said: Positive = 24
    """Tokens that a turn samples."""
    drift: float = 0.3
    """Share of the turns whose reply comes back with another token."""
    row_tokens: Positive = 2048
    """Most tokens of one forward pass; a whole history has to fit in."""
    repeats: Positive = 3
    """Timed steps of each; the median counts."""
    warmup: Positive = 1
    """Steps before those, which also make the optimizer's state."""
    threads: Count = 0
    """CPU threads for torch; 0 leaves torch's own choice."""
    seed: int = 0
    """Seed of the tokens and of where histories break."""


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Value]]:
    """A case a shape."""
    from turnwise.bench import scored, steps

    cases, o = [], options
    with tempfile.TemporaryDirectory(prefix="turnwise-bench-") as folder:
        model = scored.named(Path(folder), o.model, o.seed)
        for name, shape in _shapes(o).items():
            say(f"{name}: scoring {shape.siblings * shape.groups} episodes of {shape.turns} turns with {o.model}")
            path = Path(folder) / f"{name}.parquet"
            scored.save(path, shape, model, o.row_tokens, o.seed)
            cases.append(_case(name, steps.Work(path, model, o.row_tokens, o.threads), o, say))
    return cases


def view(cases: Sequence[Mapping[str, Value]]) -> Sequence[Mapping[str, Value]]:
    """The same for the terminal."""
    return cases


def _shapes(o: Options) -> dict[str, Shape]:
    from turnwise.bench.histories import Shape

    return {
        "drift": Shape(o.trajectories, 1, o.turns, o.first, o.read, o.said, o.drift),
        "group": Shape(1, o.trajectories, max(o.turns // 2, 1), 400, o.read, o.said),
    }


def _case(name: str, work: Work, o: Options, say: Callable[[str], None]) -> dict[str, Value]:
    """Gradients in a process of their own first, since holding two of them takes memory."""
    from turnwise.bench import steps
    from turnwise.bench.measure import Variant, measure

    compared = measure([Variant("gradients", steps.gradients, (work,))], repeats=0, warmup=1, say=say)["gradients"]
    makers = zip(NAMES, (steps.trees, steps.breaks), strict=True)
    measured = measure([Variant(way, make, (work,)) for way, make in makers], o.repeats, o.warmup, say)
    figures: dict[str, Value] = {"name": name, "grad_rel_diff": compared.warmup[0]["grad_rel_diff"]}
    for way in NAMES:
        figures |= dict(zip([f"{way}_{figure}" for figure in FIGURES], _values(measured[way]), strict=True))
    return figures | {"vs_cut": measured["cut"].median("seconds") / measured["trees"].median("seconds")}


def _values(found: Measured) -> list[float]:
    """In the order of FIGURES."""
    counts = [found.median(name) for name in ("trained", "forwarded", "projected")]
    return [found.median("seconds"), *found.spread("seconds"), found.peak_mb, *counts, found.warmup[0]["loss"]]
