"""Calls to a server: retried with growing waits and a deadline, and only where that cannot run anything twice.

| what happened                          | tried again                                    |
|----------------------------------------|------------------------------------------------|
| no connection, 429, 503                | always: nothing was run                        |
| the connection broke after the request | where the server knows the request by a number |
| no answer in all the time it may take  | never                                          |
| any other status                       | never                                          |

The deadline, `patience_s`, counts from the first failure: a step may have run for long before its connection broke.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from turnwise.errors import EngineDown, EngineError, EngineFull, SessionGone, TooLong

NOT_RUN = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
FULL = (408, 429, 503)
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 2.0


class OutOfTurn(EngineError):
    """409: the name is taken, or the step is not the next one."""


class Caller:
    """One HTTP client for the replicas of a server."""

    def __init__(
        self, token: str = "", timeout_s: float = 600.0, patience_s: float = 60.0, transport: Any = None
    ) -> None:
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        self.counts: Counter[str] = Counter(requests=0, retries=0)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self.client = httpx.AsyncClient(headers=headers, limits=limits, transport=transport)

    async def close(self) -> None:
        await self.client.aclose()

    async def get(self, url: str) -> Any:
        return await self._patient(lambda: self.client.get(url, timeout=self.timeout_s), url, again=True)

    async def post(
        self,
        url: str,
        body: Mapping[str, Any],
        *,
        again: bool,
        wait_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        known: bool = False,
    ) -> Any:
        """Send a body until there is an answer; `known` says that a 409 to a second try means the first one worked."""
        timeout = wait_s or self.timeout_s
        return await self._patient(
            lambda: self.client.post(url, json=body, timeout=timeout, headers=headers), url, again=again, known=known
        )

    async def _patient(self, send: Any, url: str, *, again: bool, known: bool = False) -> Any:
        clock = asyncio.get_running_loop().time
        late, wait, tries = float("inf"), FIRST_WAIT_S, 0
        while True:
            self.counts["requests"] += 1
            try:
                response = await send()
                return self._read(response)
            except OutOfTurn:
                if known and tries:
                    return {}
                raise
            except EngineFull as full:
                failure: EngineError = full
                wait = max(wait, _seconds(response.headers.get("Retry-After", "")))
            except httpx.HTTPError as error:
                failure = EngineDown(f"found {url} not answering ({type(error).__name__}: {error}); expected a server")
                if isinstance(error, httpx.ReadTimeout) or not (again or isinstance(error, NOT_RUN)):
                    raise failure from error
            late = min(late, clock() + self.patience_s)
            if clock() + wait > late:
                raise failure
            self.counts["retries"] += 1
            tries += 1
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, LONGEST_WAIT_S)

    def _read(self, response: httpx.Response) -> Any:
        if response.status_code == 200:
            try:
                return response.json()
            except ValueError as error:
                raise EngineDown(f"found {response.text[:80]!r} from {response.url}; expected JSON") from error
        raise refused(response.status_code, response.text)

    async def events(self, url: str, body: Mapping[str, Any], wait_s: float | None = None) -> AsyncIterator[Any]:
        """The server-sent events of one request; the caller asks again where it breaks off."""
        self.counts["requests"] += 1
        try:
            async with self.client.stream("POST", url, json=body, timeout=wait_s or self.timeout_s) as response:
                if response.status_code != 200:
                    raise refused(response.status_code, (await response.aread()).decode())
                async for line in response.aiter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        event = json.loads(line[6:])
                        if "error" in event:
                            raise refused(int(event["error"]["code"]), line[6:])
                        yield event
        except httpx.HTTPError as error:
            raise EngineDown(
                f"found {url} not answering ({type(error).__name__}: {error}); expected a server"
            ) from error


def _seconds(text: str) -> float:
    """What Retry-After says; 0 where that is nothing or a date."""
    return float(text) if text.isdecimal() else 0.0


def refused(status: int, text: str) -> EngineError:
    """A status and its body as our error, with the server's own words."""
    try:
        said = json.loads(text)["error"]
        words = str(said["message"] if isinstance(said, dict) else said)
    except (ValueError, KeyError, TypeError):
        words = text[:200]
    kinds: dict[int, type[EngineError]] = {404: SessionGone, 409: OutOfTurn, 413: TooLong}
    kind = EngineFull if status in FULL else kinds.get(status, EngineDown if status >= 499 else EngineError)
    return kind(f"found status {status} from the server: {words}" if not words.startswith("found") else words)
