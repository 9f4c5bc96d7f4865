"""What a run looks like in a terminal: a live table with progress bars, plain lines in a pipe, or one last line."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from turnwise.cli.columns import COLUMNS, Column, aligned, cells, heading, held_out, trained
from turnwise.reporter import Reporter, Silent

ROWS = 15
"""Steps that stay in sight."""
RESULTS = 4
"""Held-out results that stay in sight: the first, which all others are measured against, and the newest."""


class Shown(Reporter, Protocol):
    """A Reporter that holds the terminal until it is closed."""

    def close(self) -> None: ...


def reporter(*, quiet: bool, terminal: bool, columns: Sequence[Column] = COLUMNS) -> Shown:
    """The one that fits where the output goes."""
    if quiet:
        return Last()
    return LiveTable(Console(), columns) if terminal else Lines(columns)


class Last(Silent):
    """Prints the last line of the run and nothing before it."""

    def finish(self, lines: Sequence[str]) -> None:
        print("\n".join(lines[-1:]), flush=True)

    def close(self) -> None: ...


class Lines(Last):
    """One aligned line a step, for logs and pipes."""

    def __init__(self, columns: Sequence[Column] = COLUMNS) -> None:
        self.columns = columns
        self.headed = False

    def start(self, title: str, lines: Sequence[str]) -> None:
        self._say(title, *lines)

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        if trained(metrics, self.columns):
            words = cells(step, total, metrics, self.columns)
            self._say(*([] if self.headed else [heading(self.columns)]), aligned(words, self.columns))
            self.headed = True
        if line := held_out(step, metrics):
            self._say(line)

    def note(self, text: str) -> None:
        self._say(text)

    def finish(self, lines: Sequence[str]) -> None:
        self._say(*lines)

    def _say(self, *lines: str) -> None:
        for line in lines:
            print(line, flush=True)


class LiveTable:
    """The newest steps as a table, held-out results below it, and a bar for each stage of the current step."""

    def __init__(self, console: Console, columns: Sequence[Column] = COLUMNS) -> None:
        self.console = console
        self.columns = columns
        self.rows: deque[list[str]] = deque(maxlen=ROWS)
        self.results: list[str] = []
        self.bars: dict[str, TaskID] = {}
        self.progress_bars = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self.live = Live(get_renderable=self._picture, console=console, refresh_per_second=8)

    def start(self, title: str, lines: Sequence[str]) -> None:
        self._print(title, style="bold")
        for line in lines:
            self._print(line)
        self.live.start()

    def progress(self, stage: str, done: int, total: int) -> None:
        if stage not in self.bars:
            self.bars[stage] = self.progress_bars.add_task(stage)
        bar = self.bars[stage]
        if done < self.progress_bars.tasks[self.progress_bars.task_ids.index(bar)].completed:
            self.progress_bars.reset(bar)
        self.progress_bars.update(bar, completed=done, total=total)

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        if trained(metrics, self.columns):
            self.rows.append(cells(step, total, metrics, self.columns))
        if line := held_out(step, metrics):
            self.results.append(line)
        self.live.refresh()

    def note(self, text: str) -> None:
        self._print(text)

    def finish(self, lines: Sequence[str]) -> None:
        self.bars.clear()
        self.close()
        for line in lines:
            self._print(line)

    def close(self) -> None:
        """Give the terminal back; what stands on it stays. Bars say nothing once nothing moves."""
        self.live.stop()

    def _print(self, text: str, style: str = "") -> None:
        """As it is: a run's name or a task may hold square brackets."""
        self.console.print(Text(text, style))

    def _picture(self) -> Group:
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for title in ("step", *(c.title for c in self.columns)):
            table.add_column(title, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        shown = self.results[:1] + self.results[1:][1 - RESULTS :]
        parts = [table] if self.rows else []
        return Group(*parts, *(Text(line, "green") for line in shown), *([self.progress_bars] if self.bars else []))
