"""Turns to packed rows: tokens forwarded and trained as trees, as one sample a turn, and cut at every break.

Histories are made up, with lengths of real agents; `tokens_distinct` counts pairs of token and context by themselves,
apart from the code that is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from turnwise.config.run import Positive
from turnwise.config.section import Section

if TYPE_CHECKING:
    from turnwise.bench.histories import Shape
    from turnwise.bench.report import Value
    from turnwise.types import Trajectory

WAYS = ("", "per_turn_", "cut_")
"""As trees, one sample a turn, cut at every break: what the names of their figures begin with."""
FIGURES = ("samples", "tokens_forwarded", "tokens_distinct", "tokens_trained", "tokens_eligible", "ms")


class Options(Section):
    """How long histories are and how often they are turned into rows."""

    trajectories: Positive = 64
    """Episodes of the cases `clean`, `drift` and `group`; a quarter of them in `long`."""
    turns: Positive = 12
    """Turns of an episode; in `long` 64."""
    first: Positive = 464
    """Tokens of the first prompt; in `group` 400, shared by 8 siblings."""
    read: Positive = 138
    """Tokens that each later turn reads anew."""
    said: Positive = 80
    """Tokens that a turn samples."""
    row_tokens: Positive = 32768
    """Most tokens of a row; a longer tree is split, and what its parts share is forwarded again."""
    repeats: Positive = 7
    """Timed repeats of each way; the median counts."""
    seed: int = 0
    """Seed of the tokens and of where histories break."""


VOCAB = 50_000


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Value]]:
    """A case a shape."""
    cases = []
    for name, shape in _shapes(options).items():
        say(f"{name}: {shape.groups * shape.siblings} episodes of {shape.turns} turns")
        cases.append(_case(name, shape, options))
    return cases


def view(cases: Sequence[Mapping[str, Value]]) -> Sequence[Mapping[str, Value]]:
    """The same for the terminal."""
    return cases


def _shapes(o: Options) -> dict[str, Shape]:
    from turnwise.bench.histories import Shape

    lengths = (o.first, o.read, o.said)
    return {
        "clean": Shape(o.trajectories, 1, o.turns, *lengths),
        "drift": Shape(o.trajectories, 1, o.turns, *lengths, drift=0.2),
        "long": Shape(max(o.trajectories // 4, 1), 1, 64, *lengths),
        "group": Shape(max(o.trajectories // 8, 1), 8, o.turns, 400, *lengths[1:]),
    }


def _case(name: str, shape: Shape, o: Options) -> dict[str, Value]:
    from turnwise.bench.histories import by_break, by_turn, histories

    found = histories(shape, VOCAB, o.seed)
    count = distinct(found)
    case: dict[str, Value] = {"name": name}
    for way, samples in zip(WAYS, (found, by_turn(found), by_break(found)), strict=True):
        figures = _measured(samples, "trajectory" if way else "group", o)
        case |= {f"{way}{figure}": value for figure, value in figures.items()} | {f"{way}tokens_distinct": count}
    return case


def _measured(samples: Sequence[Trajectory], share: str, o: Options) -> dict[str, Value]:
    """Merge, weigh and pack, several times."""
    import numpy as np

    from turnwise.config.run import TrainConfig
    from turnwise.train import batch

    config = TrainConfig.model_validate({"row_tokens": o.row_tokens, "share": share})
    advantage = np.ones(len(samples), np.float32)
    times = []
    for _ in range(o.repeats):
        began = time.perf_counter()
        _, counts = batch(samples, advantage, range(len(samples)), config)
        times.append((time.perf_counter() - began) * 1e3)
    units = [t.group if share == "group" else i for i, t in enumerate(samples)]
    roots = {(unit, int(turn.prompt_ids[0])) for unit, t in zip(units, samples, strict=True) for turn in t.turns}
    names = ("tokens_forwarded", "tokens_trained", "tokens_eligible")
    return {
        "samples": len(roots),
        **{name: counts[name] for name in names},
        "ms": median(times),
        "ms_min": min(times),
        "ms_max": max(times),
    }


PRIME = 2**61 - 1


def distinct(trajectories: Sequence[Trajectory]) -> int:
    """How many different pairs of a token and all that stands before it the turns of each group hold."""
    seen: set[tuple[int, int]] = set()
    for trajectory in trajectories:
        for turn in trajectory.turns:
            prefix = 1
            for token in (*turn.prompt_ids.tolist(), *turn.completion_ids.tolist()):
                prefix = (prefix * 1_000_003 + token + 1) % PRIME
                seen.add((trajectory.group, prefix))
    return len(seen)
