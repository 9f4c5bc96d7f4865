"""Variants in, their figures out: each runs in a process of its own, so that peaks of memory do not mix, and they take
turns (A B C A B C ...), so that a machine that slows down slows them all."""

from __future__ import annotations

import ctypes
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from turnwise.errors import RunError

STATUS = Path("/proc/self/status")
Result = TypeVar("Result")
Figures = dict[str, float]
Step = Callable[[], Figures]
"""Does the work once and returns what is to be known of it; how long it took is measured around it."""


@dataclass(frozen=True, slots=True)
class Variant:
    """`make(*args)` is called in the variant's own process, not timed, and returns the step that is repeated."""

    name: str
    make: Callable[..., Step]
    args: tuple[Any, ...] = ()


@dataclass(slots=True)
class Measured:
    """Every round of a variant, each with its `seconds`; `peak_mb` is the most memory its process ever held."""

    warmup: list[Figures] = field(default_factory=list)
    repeats: list[Figures] = field(default_factory=list)
    peak_mb: float = 0.0

    def values(self, figure: str) -> list[float]:
        return [repeat[figure] for repeat in self.repeats]

    def median(self, figure: str) -> float:
        return median(self.values(figure))

    def spread(self, figure: str) -> tuple[float, float]:
        """Lowest and highest: few repeats have no quartiles worth the name."""
        return min(self.values(figure)), max(self.values(figure))


def measure(
    variants: Sequence[Variant], repeats: int, warmup: int = 1, say: Callable[[str], None] = lambda line: None
) -> dict[str, Measured]:
    """Run every variant once a round; `say` is told of each."""
    with _workers(variants) as workers:
        found = {worker.name: Measured() for worker in workers}
        for number in range(warmup + repeats):
            title = f"warm-up {number + 1}/{warmup}" if number < warmup else f"repeat {number - warmup + 1}/{repeats}"
            for worker in workers:
                figures = worker.step()
                one = found[worker.name]
                (one.warmup if number < warmup else one.repeats).append(figures)
                say(f"{title}: {worker.name} {figures['seconds']:.2f} s")
        for worker in workers:
            found[worker.name].peak_mb = worker.peak()
    return found


@contextmanager
def _workers(variants: Sequence[Variant]) -> Iterator[list[_Worker]]:
    """One process a variant, all of them ready; none is left behind."""
    workers = [_Worker(variant) for variant in variants]
    try:
        for worker in workers:
            worker.receive()
        yield workers
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """A variant's process, which waits between its rounds."""

    def __init__(self, variant: Variant) -> None:
        self.name = variant.name
        context = get_context("spawn")
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_serve, args=(far, variant), daemon=True)
        self.process.start()
        far.close()

    def step(self) -> Figures:
        self.pipe.send("step")
        figures: Figures = self.receive()
        return figures

    def peak(self) -> float:
        self.pipe.send("peak")
        return float(self.receive())

    def receive(self) -> Any:
        """The process's next word."""
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RunError(
                f"the process of variant {self.name!r} ended with exit code {self.process.exitcode}; expected figures: "
                "its own words stand above (-9 is most often too little memory: measure less at once)"
            ) from None

    def close(self) -> None:
        """A process that waits ends by itself; one that is at work is ended."""
        self.pipe.close()
        self.process.join(5)
        self.process.terminate()
        self.process.join()


def _serve(pipe: Connection, variant: Variant) -> None:
    """The life of a variant's process: make, then answer until nobody asks any more; Ctrl-C is its parent's matter."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    step = variant.make(*variant.args)
    pipe.send("ready")
    while (asked := _next(pipe)) is not None:
        if asked == "peak":
            pipe.send(peak_mb())
        else:
            began = time.perf_counter()
            figures = step()
            seconds = time.perf_counter() - began
            _trim()
            pipe.send({**figures, "seconds": seconds})


def _next(pipe: Connection) -> str | None:
    """What is asked for next; None when the other end is closed."""
    try:
        return str(pipe.recv())
    except EOFError:
        return None


def _trim() -> None:
    """Hand freed memory back, which glibc would keep, so that a variant that waits takes none from the one at work."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def extra_mb(work: Callable[[], Result]) -> tuple[Result, float | None]:
    """What work returns, and how much resident memory it took at most beyond what was held before, in MiB; None where
    the system does not tell."""
    _trim()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return work(), None
    before = _status_mb("VmRSS")
    result = work()
    return result, _status_mb("VmHWM") - before


def _status_mb(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


def peak_mb() -> float:
    """The most resident memory this process ever held, in MiB; Linux's other count would include its parent's."""
    if STATUS.exists():
        return _status_mb("VmHWM")
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 2**20 if sys.platform == "darwin" else size / 1024
