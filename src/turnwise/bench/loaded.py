"""Clients of `turnwise bench load`: three kinds of conversation, three kinds of bad behaviour, and what is counted."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from turnwise.bench.load import Options
from turnwise.bench.report import Value
from turnwise.errors import RunError

GENERATE, CREATE, STEP = "/inference/v1/generate", "/compact_session/create", "/compact_session/step"
GAUGE = re.compile(r"^turnwise_engine_(cache_bytes|cache_peak_bytes|cache_limit_bytes) (\S+)$", re.M)
HARMS = ("cancel", "hang_up", "slow")


@dataclass(slots=True)
class Seen:
    """What happened in one run."""

    statuses: Counter[str] = field(default_factory=Counter)
    harms: Counter[str] = field(default_factory=Counter)
    peak_bytes: float = 0.0
    limit_bytes: float = 0.0
    samples: int = 0
    replies: dict[int, list[list[int]]] = field(default_factory=dict)
    """Of each conversation that was completed, the tokens of its turns."""


@dataclass(slots=True)
class Talk:
    """One conversation: even ones bring whole prompts in a session, odd ones live on the server and are compacted."""

    number: int
    options: Options
    http: httpx.AsyncClient
    seen: Seen
    name: str
    harm: random.Random | None
    ids: list[int] = field(default_factory=list)
    replies: list[list[int]] = field(default_factory=list)

    @property
    def compacts(self) -> bool:
        return self.number % 2 == 1

    async def play(self, late: float) -> None:
        """All turns, unless it gets too late."""
        draw = random.Random(self.options.seed * 1_000_003 + self.number)
        for turn in range(self.options.turns):
            new = [draw.randrange(5, 250) for _ in range(self.options.read)]
            if time.monotonic() > late:
                return
            path, body, headers = self._asked(turn, new)
            await self._harm(path, body, headers)
            said = await self._patient(path, body, headers)
            ids = said["all_token_ids"] if self.compacts else said["choices"][0]["token_ids"]
            self.ids += [*new, *ids]
            self.replies.append(ids)
        self.seen.replies[self.number] = self.replies
        if self.compacts:
            await self.http.delete(f"/compact_session/{self.name}")

    def _asked(self, turn: int, new: list[int]) -> tuple[str, dict[str, Any], dict[str, str]]:
        options, seed = self.options, self.number * 101 + turn
        if not self.compacts:
            params = {"max_tokens": options.write, "seed": seed, "logprobs": 0}
            return GENERATE, {"token_ids": [*self.ids, *new], "sampling_params": params}, {"X-Session-ID": self.name}
        if turn:
            return STEP, {"session_id": self.name, "new_token_ids": new, "sequence": turn - 1}, {}
        shared = {"max_response_tokens": options.write, "stop_token_ids": [], "seed": seed}
        return CREATE, {"session_id": self.name, "prompt_ids": new, "max_kv_len": 3 * options.read, **shared}, {}

    async def _harm(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Perhaps begin the turn and not see it through; a session is not created twice, so that is spared."""
        if self.harm is None or path == CREATE or self.harm.random() >= self.options.harm:
            return
        kind = "cancel" if self.compacts else self.harm.choice(HARMS)
        self.seen.harms[kind] += 1
        try:
            async with asyncio.timeout(self.harm.uniform(0.01, 1.0)):
                if kind == "cancel":
                    self._count(path, await self.http.post(path, json=body, headers=headers))
                else:
                    await self._read(path, {**body, "stream": True}, headers, slow=kind == "slow")
        except (TimeoutError, httpx.HTTPError):
            return

    async def _read(self, path: str, body: dict[str, Any], headers: dict[str, str], *, slow: bool) -> None:
        """Read a stream to its first event and hang up, or read it with pauses."""
        async with self.http.stream("POST", path, json=body, headers=headers) as response:
            self.seen.statuses[f"{path} {response.status_code}"] += 1
            async for _ in response.aiter_lines():
                if not slow:
                    return
                await asyncio.sleep(0.05)

    async def _patient(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        """The turn itself, asked again while there is no room."""
        while True:
            response = await self.http.post(path, json=body, headers=headers)
            self._count(path, response)
            if response.status_code == 200:
                return response.json()
            if response.status_code != 429:
                raise RunError(f"found status {response.status_code} from {path}; expected 200: {response.text[:300]}")
            await asyncio.sleep(float(response.headers["Retry-After"]))

    def _count(self, path: str, response: httpx.Response) -> None:
        self.seen.statuses[f"{path} {response.status_code}"] += 1


def measure(options: Options, say: Callable[[str], None]) -> list[dict[str, Value]]:
    """The figures of one load."""
    with serving(options) as url:
        say(f"serving {options.model} at {url}")
        return asyncio.run(_measure(options, url, say))


async def _measure(options: Options, url: str, say: Callable[[str], None]) -> list[dict[str, Value]]:
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=httpx.Limits(max_connections=None)) as http:
        documented = _documented((await http.get("/openapi.json")).json())
        loud = await _watched(http, lambda seen: _crowd(options, http, seen, began + options.seconds))
        took = time.monotonic() - began
        say(f"{len(loud.replies)} of {options.sessions} conversations in {took:.0f} s; now quietly, one by one")
        quiet = await _watched(http, lambda seen: _quiet(options, http, seen, sorted(loud.replies)))
        stats = (await http.get("/metrics")).text
    same = [n for n in loud.replies if loud.replies[n] == quiet.replies.get(n)]
    wrong = {status for status in loud.statuses if status not in documented}
    tokens = sum(len(reply) for replies in loud.replies.values() for reply in replies)
    figures: dict[str, Value] = {
        "name": f"load {options.model}",
        "sessions": options.sessions,
        "completed": len(loud.replies),
        "equal_to_quiet": len(same),
        "seconds": round(took, 1),
        "tok_s": round(tokens / took, 1),
        "requests": sum(loud.statuses.values()),
        "undocumented_statuses": len(wrong),
        "cache_peak_mb": round(loud.peak_bytes / 2**20, 3),
        "cache_limit_mb": round(loud.limit_bytes / 2**20, 3),
        "memory_samples": loud.samples,
        "near_ties": _counter(stats, "near_ties"),
        "evicted": _counter(stats, "evicted"),
        "events": _counter(stats, "events"),
    }
    statuses = {f"answers {name}": float(n) for name, n in sorted(loud.statuses.items())}
    return [{**figures, **{kind: float(loud.harms[kind]) for kind in HARMS}, **statuses}]


async def _crowd(options: Options, http: httpx.AsyncClient, seen: Seen, late: float) -> None:
    harm = random.Random(options.seed)
    talks = [Talk(n, options, http, seen, f"loud-{n}", random.Random(harm.random())) for n in range(options.sessions)]
    await asyncio.gather(*(talk.play(late) for talk in talks))


async def _quiet(options: Options, http: httpx.AsyncClient, seen: Seen, numbers: list[int]) -> None:
    for n in numbers:
        await Talk(n, options, http, seen, f"quiet-{n}", None).play(float("inf"))


async def _watched(http: httpx.AsyncClient, work: Callable[[Seen], Awaitable[None]]) -> Seen:
    """Do the work and look at the server's memory meanwhile."""
    seen = Seen()
    task = asyncio.ensure_future(work(seen))
    while not task.done():
        await asyncio.wait({task}, timeout=0.25)
        gauges = {name: float(value) for name, value in GAUGE.findall((await http.get("/metrics")).text)}
        seen.peak_bytes = max(seen.peak_bytes, gauges["cache_bytes"], gauges["cache_peak_bytes"])
        seen.limit_bytes = gauges["cache_limit_bytes"]
        seen.samples += 1
    await task
    return seen


def _documented(schema: dict[str, Any]) -> set[str]:
    """Every "route status" that the server's OpenAPI names."""
    paths = schema["paths"]
    return {f"{path} {status}" for path in paths for way in paths[path].values() for status in way["responses"]}


def _counter(page: str, name: str) -> float:
    found = re.search(rf"^turnwise_engine_{name} (\S+)$", page, re.M)
    return float(found[1]) if found else 0.0


@contextmanager
def serving(options: Options) -> Iterator[str]:
    """A `turnwise serve` of its own, ended with the block."""
    words = ["serve", options.model, "--port", "0", "--device", "cpu", "--threads", str(options.threads)]
    more = ["--max_cache_mb", str(options.max_cache_mb), "--max_sessions", str(4 * options.sessions)]
    process = subprocess.Popen(
        [sys.executable, "-m", "turnwise.cli.main", *words, *more], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        if not found:
            raise RunError("found a server that did not start; its own words stand above")
        yield found[0]
    finally:
        process.terminate()
        process.communicate()
