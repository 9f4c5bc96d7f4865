"""Episodes to a file of conversations: played side by side, kept over a threshold, checked, and written one by one.

A folder holds config.toml, data.jsonl (what is kept) and episodes.jsonl (one line an episode, however it ended). What
stands there is never played again, so an interrupted call goes on when it is repeated.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from turnwise.config import dump
from turnwise.config.sft import SftDataConfig
from turnwise.envs import TaskSet, find
from turnwise.errors import ConfigError, RunError, TurnwiseError
from turnwise.reporter import Reporter, Silent
from turnwise.runs import disk
from turnwise.runs.resume import unlike
from turnwise.sft.lines import mistake
from turnwise.sft.players import Episode, Play, player
from turnwise.types import Task

MAY_CHANGE = {"out", "tasks", "parallel", "device", "endpoint.url", "endpoint.timeout_s", "endpoint.retries"}
"""What a call that goes on may be told anew."""
FAILURES = 8
"""Failed episodes in a row, with no other since the start, after which something is wrong with all of them."""


class Stock:
    """The folder: what was played, and what of it was kept. Episodes that failed are played again by the next call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / "data.jsonl"
        self.episodes = path / "episodes.jsonl"
        kept, _ = disk.read_lines(self.data)
        played, _ = disk.read_lines(self.episodes)
        ends = {str(line["id"]): str(line["end"]) for line in played}
        others = {name: end for name, end in ends.items() if end not in ("kept", "failed")}
        # What is kept is what the data holds: a kill between an episode's two lines leaves it there and not listed.
        stands = {str(line["metadata"]["id"]): "kept" for line in kept}
        self.counts = Counter((others | stands).values())
        self.done = {*others, *stands}

    def add(self, name: str, end: str, record: Mapping[str, Any] | None, about: Mapping[str, Any]) -> None:
        """One episode's end; a conversation that is kept is on the disk before the episode counts as played."""
        if record is not None:
            disk.append_line(self.data, disk.encode(record))
        disk.append_line(self.episodes, disk.encode({"id": name, "end": end, **about}))
        self.done.add(name)
        self.counts[end] += 1


def gather(
    config: SftDataConfig,
    reporter: Reporter | None = None,
    *,
    stop: threading.Event | None = None,
    by: Play | None = None,
) -> dict[str, int]:
    """Play what is not played yet; returns how many episodes ended how, those of earlier calls among them."""
    path = Path(config.out)
    tasks = TaskSet(find(config.env.id, config.env.args), config.env.holdout_fraction, config.env.holdout_seed)
    _check(path, config)
    stock = Stock(path)
    who = by or player(config)
    _claim(path, config)
    return asyncio.run(_gather(config, tasks, stock, who, reporter or Silent(), stop or threading.Event()))


def _check(path: Path, config: SftDataConfig) -> None:
    """A folder goes on under the config it was started with."""
    stands = path / "config.toml"
    if not stands.is_file():
        if any((path / name).exists() for name in ("data.jsonl", "episodes.jsonl")):
            raise RunError(f"found conversations in {path} without config.toml; expected a new folder: set --out")
        return
    found = unlike(stands.read_text(encoding="utf-8"), dump(config), MAY_CHANGE)
    if found:
        raise ConfigError(
            f"found {found}; expected the config that {path} was started with: repeat with "
            f"`turnwise sft-data @ {stands}`, or choose another --out"
        )


def _claim(path: Path, config: SftDataConfig) -> None:
    path.mkdir(parents=True, exist_ok=True)
    text = dump(config)
    disk.replace(path / "config.toml", lambda p: p.write_text(text, encoding="utf-8"))


async def _gather(
    config: SftDataConfig, tasks: TaskSet, stock: Stock, who: Play, reporter: Reporter, stop: threading.Event
) -> dict[str, int]:
    """As many workers as episodes may run at once, each taking the next one."""
    began, total = time.perf_counter(), config.tasks * config.env.group
    reporter.start(f"sft-data: {config.env.id} by {config.source}", [_about(config, stock, total)])
    waiting = _waiting(config, tasks, stock)
    teller = _Teller(reporter, stock, total)

    async def work() -> None:
        for task, attempt, name in waiting:
            if stop.is_set():
                return
            _keep(config, stock, name, attempt, await who(task, attempt))
            teller.tell()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(config.parallel):
                group.create_task(work())
    except* TurnwiseError as failed:
        raise failed.exceptions[0] from None
    seconds = time.perf_counter() - began
    reporter.finish(_closing(config, stock, total, seconds))
    return {end: n for end, n in stock.counts.items() if n}


def _waiting(config: SftDataConfig, tasks: TaskSet, stock: Stock) -> Iterator[tuple[Task, int, str]]:
    """Episodes that were not played: task, attempt, and the name by which the folder knows it."""
    seen: set[str] = set()
    for task in islice(tasks.train(seed=config.seed), config.tasks):
        if task.key in seen:
            raise ConfigError(
                f"found tasks {config.tasks}, and {config.env.id} has only {len(seen)} on its training side; expected "
                "at most as many (more attempts at each: --env.group)"
            )
        seen.add(task.key)
        for attempt in range(config.env.group):
            name = f"{task.key}#{attempt}"
            if name not in stock.done:
                yield task, attempt, name


def _keep(config: SftDataConfig, stock: Stock, name: str, attempt: int, episode: Episode) -> None:
    """Write the episode's lines; all of them failing from the start is an error."""
    played = episode.played
    about = {"reward": played.reward, "stop": played.stop_reason.value, "error": played.error}
    if played.error is not None:
        stock.add(name, "failed", None, about)
        if stock.counts["failed"] == stock.counts.total() >= FAILURES:
            raise RunError(f"the first {FAILURES} episodes failed; the last with: {played.error}")
        return
    record = _record(config, name, attempt, episode)
    wrong = mistake(record)
    if not played.reward > config.threshold:
        stock.add(name, "under_threshold", None, about)
    elif wrong:
        stock.add(name, "invalid", None, {**about, "why": wrong})
    else:
        stock.add(name, "kept", record, about)


def _record(config: SftDataConfig, name: str, attempt: int, episode: Episode) -> dict[str, Any]:
    played = episode.played
    model = {"engine": config.model, "endpoint": config.endpoint.name, "expert": config.expert or "expert"}
    known = {
        "id": name,
        "env": config.env.id,
        "task": played.task.split or played.task.key,
        "attempt": attempt,
        "reward": played.reward,
        "stop": played.stop_reason.value,
        "by": model[config.source],
    }
    tools = {"tools": episode.tools} if episode.tools else {}
    return {"messages": episode.messages, **tools, "metadata": known}


class _Teller:
    """A bar that moves with each episode, and a line at each tenth of them."""

    def __init__(self, reporter: Reporter, stock: Stock, total: int) -> None:
        self.reporter = reporter
        self.stock = stock
        self.total = total
        self.tenth = 10 * stock.counts.total() // total

    def tell(self) -> None:
        done = self.stock.counts.total()
        self.reporter.progress("episodes", done, self.total)
        if 10 * done // self.total > self.tenth:
            self.tenth = 10 * done // self.total
            self.reporter.note(f"{done} of {self.total} episodes: {_counted(self.stock)}")


def _counted(stock: Stock) -> str:
    return ", ".join(f"{end.replace('_', ' ')} {n}" for end, n in sorted(stock.counts.items()) if n) or "none yet"


def _about(config: SftDataConfig, stock: Stock, total: int) -> str:
    before = f", {len(stock.done)} of them played before" if stock.done else ""
    return f"{total} episodes{before}; kept over reward {config.threshold:g}; folder {config.out}"


def _closing(config: SftDataConfig, stock: Stock, total: int, seconds: float) -> list[str]:
    done = stock.counts.total()
    told = f"{_counted(stock)} of {total} episodes ({seconds:.1f} s)"
    if done < total:
        return [told, f"stopped; go on with: turnwise sft-data @ {stock.path / 'config.toml'}"]
    if not stock.counts["kept"]:
        return [told, f"nothing kept: lower --threshold, or look at {stock.episodes}"]
    return [told, f"train on it: turnwise sft --data {stock.data} --model {config.model}"]
