"""The turn loop by itself: episodes a second against an engine that answers at once, few and many side by side.

Every reply is a tool call, every answer a tool message; prompts grow by bridging and are attributed, as in a run. What
is measured is all that is not the model: rendering, parsing, tools, bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from turnwise.config.run import Positive
from turnwise.config.section import Section

if TYPE_CHECKING:
    from turnwise.bench.measure import Figures, Measured, Step
    from turnwise.bench.report import Value


class Options(Section):
    """How many episodes, how many of them at a time, and how long."""

    concurrent: Annotated[list[Positive], Field(min_length=1)] = [1, 64, 512]
    """Episodes under way at once, a case each."""
    episodes: Positive = 512
    """Episodes a repeat, at least as many as are under way at once."""
    turns: Positive = 8
    """Turns of an episode."""
    words: Positive = 60
    """Words that the tool answers with."""
    repeats: Positive = 3
    """Timed repeats; the median counts."""


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Value]]:
    """A case a number of concurrent episodes, each in a process of its own."""
    from turnwise.bench.measure import Variant, measure

    variants = [Variant(f"{n} at once", _make, (n, options)) for n in options.concurrent]
    return [_case(name, found) for name, found in measure(variants, options.repeats, say=say).items()]


def view(cases: Sequence[Mapping[str, Value]]) -> Sequence[Mapping[str, Value]]:
    """The same for the terminal."""
    return cases


def _case(name: str, found: Measured) -> dict[str, Value]:
    case: dict[str, Value] = {"name": name}
    for figure in ("episodes_per_s", "turns_per_s", "ms_per_turn"):
        low, high = found.spread(figure)
        case |= {figure: found.median(figure), f"{figure}_min": low, f"{figure}_max": high}
    kept = ("episodes", "tokens_per_episode", "memory_mb")
    return {**case, **{figure: found.median(figure) for figure in kept}, "peak_mb": found.peak_mb}


def _make(concurrent: int, options: Options) -> Step:
    """The step that is repeated: as many batches as make up the episodes."""
    from turnwise.bench.talk import batch

    rounds = -(-max(options.episodes, concurrent) // concurrent)
    return partial(_step, batch(options.turns, options.words), concurrent, rounds, options.turns)


def _step(play: Callable[[int], int], concurrent: int, rounds: int, turns: int) -> Figures:
    """Play all rounds; `play` says how many tokens the last episode of a batch held."""
    import time

    from turnwise.bench.measure import extra_mb

    def work() -> int:
        return [play(concurrent) for _ in range(rounds)][-1]

    began = time.perf_counter()
    tokens, memory = extra_mb(work)
    seconds, episodes = time.perf_counter() - began, rounds * concurrent
    return {
        "episodes": float(episodes),
        "episodes_per_s": episodes / seconds,
        "turns_per_s": episodes * turns / seconds,
        "ms_per_turn": 1e3 * seconds / (episodes * turns),
        "tokens_per_episode": float(tokens),
        "memory_mb": memory or 0.0,
    }
