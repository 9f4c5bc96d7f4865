"""The engine of a turnwise server, or of several that serve the same model: a session stays where it was opened."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from turnwise.engine.remote import FIRST_WAIT_S, LONGEST_WAIT_S, Caller, OutOfTurn
from turnwise.engine.wire import CompletionWire, EventWire, hear, rest, tell
from turnwise.errors import EngineDown, EngineFull, SessionGone
from turnwise.types import Compaction, Completion, Event, Listener, Sampling, Session, Settings

SLACK_S = 30.0
"""How much longer than its deadline a step is waited for."""


@dataclass(slots=True, eq=False)
class HttpSession:
    """What the client knows of a conversation; `sequence` numbers its next step."""

    url: str
    name: str
    sampling: Sampling
    seed: int
    ids: list[int] = field(default_factory=list)
    client: str = ""
    sequence: int = 0
    unsure: bool = False
    """A step was given up and may have run: the server may hold more than `ids`."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class HttpEngine:
    """Implements types.Engine over the /engine routes of a turnwise server.

    A step is numbered, so that it can be asked for again after a broken connection without running twice. A step that
    is cancelled in the moment in which the server finishes it is undone by reading the session's tokens again under a
    seed made from the session's: its next draws are then others than they would have been.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        token: str = "",
        timeout_s: float = 600.0,
        patience_s: float = 60.0,
        transport: Any = None,
    ) -> None:
        self.urls = [url.rstrip("/") for url in ([urls] if isinstance(urls, str) else urls)]
        self.caller = Caller(token, timeout_s, patience_s, transport)
        self.version = 0
        self.tokens_sampled = 0
        self._sessions: set[HttpSession] = set()

    async def open(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        client: str = "",
        compaction: Compaction | None = None,
    ) -> HttpSession:
        session = HttpSession(self._least(), uuid.uuid4().hex, sampling, seed, [int(i) for i in prompt_ids], client)
        body = {
            "session": session.name,
            "prompt_ids": session.ids,
            "sampling": asdict(sampling),
            "seed": seed,
            "client": client,
            "compaction": None if compaction is None else asdict(compaction),
        }
        await self._post(session, "open", body, known=True)
        self._sessions.add(session)
        return session

    async def step(
        self,
        session: Session,
        new_ids: Sequence[int],
        max_tokens: int | None = None,
        *,
        whole: bool = False,
        sampling: Sampling | None = None,
        seed: int | None = None,
        deadline_s: float | None = None,
        listen: Listener | None = None,
    ) -> Completion:
        held = self._own(session)
        async with held.turn:
            self._own(session)  # it may have been closed while this step queued
            new = [int(i) for i in new_ids]
            body = {
                "new_ids": new,
                "max_tokens": max_tokens,
                "whole": whole,
                "sampling": asdict(sampling or held.sampling),
                "seed": seed,
                "deadline_s": deadline_s,
            }
            again = {**body, "new_ids": new if whole else [*held.ids, *new], "whole": True}
            again["seed"] = seed if seed is not None else (held.seed + 1_000_003 * (len(held.ids) + 1)) % 2**63
            wait = None if deadline_s is None else deadline_s + SLACK_S
            answer = await self._numbered(held, "step", body, again, wait, listen)
            completion = CompletionWire.model_validate(answer).plain()
            held.ids = [*(new if whole else [*held.ids, *new]), *completion.ids.tolist()]
            held.sampling, held.seed = sampling or held.sampling, held.seed if seed is None else seed
            self.tokens_sampled += len(completion.ids)
            self.version = int(max(completion.policy_versions, default=self.version))
            return completion

    async def compact(
        self, session: Session, region: tuple[int, int] | None = None, settings: Settings | None = None
    ) -> Event | None:
        held = self._own(session)
        async with held.turn:
            body = {"region": region, "settings": None if settings is None else asdict(settings)}
            answer = await self._numbered(held, "compact", body, body)
            return None if answer["event"] is None else EventWire.model_validate(answer["event"]).plain()

    async def fork(self, session: Session, *, seed: int) -> HttpSession:
        held = self._own(session)
        async with held.turn:
            branch = HttpSession(held.url, uuid.uuid4().hex, held.sampling, seed, list(held.ids), held.client)
            body = {"session": held.name, "branch": branch.name, "seed": seed}
            await self._post(held, "fork", body, known=True)
            self._sessions.add(branch)
            return branch

    async def close(self, session: Session) -> None:
        held = self._own(session)
        self._sessions.remove(held)
        try:
            await self._post(held, "close", {"session": held.name})
        except SessionGone:
            return  # the server had closed it by its own limits

    async def pause(self) -> None:
        await self._all("pause", {})

    async def resume(self) -> None:
        await self._all("resume", {})

    async def load(self, folder: Path, version: int) -> None:
        await self._all("update_weights", {"folder": str(folder), "version": version})
        self.version = version

    def stats(self) -> Mapping[str, float]:
        gauges = {"sessions": len(self._sessions), "version": self.version, "tokens_sampled": self.tokens_sampled}
        return {name: float(value) for name, value in (self.caller.counts | gauges).items()}

    async def aclose(self) -> None:
        """Close all sessions and the connections."""
        try:
            for session in list(self._sessions):
                await self.close(session)
        finally:
            await self.caller.close()

    def _least(self) -> str:
        """The replica with the fewest sessions."""
        held = [session.url for session in self._sessions]
        return min(self.urls, key=held.count)

    def _own(self, session: Session) -> HttpSession:
        if not isinstance(session, HttpSession) or session not in self._sessions:
            raise SessionGone("found a session this engine does not hold (closed, or another engine's); open a new one")
        return session

    async def _numbered(
        self,
        held: HttpSession,
        route: str,
        body: dict[str, Any],
        again: dict[str, Any],
        wait_s: float | None = None,
        listen: Listener | None = None,
    ) -> Any:
        """One step under its number. `again` is asked for where a step that was given up turns out to have run."""
        try:
            answer = await self._asked(held, route, body, wait_s, listen)
        except OutOfTurn:
            if not held.unsure:
                raise
            held.sequence += 1
            answer = await self._asked(held, route, again, wait_s, listen)
        held.sequence += 1
        held.unsure = False
        return answer

    async def _asked(
        self, held: HttpSession, route: str, body: dict[str, Any], wait_s: float | None, listen: Listener | None
    ) -> Any:
        asked = {"session": held.name, "sequence": held.sequence, **body}
        try:
            if listen is None:
                return await self._post(held, route, asked, wait_s=wait_s)
            return await self._streamed(held, route, asked, wait_s, listen)
        except (asyncio.CancelledError, EngineDown):
            held.unsure = True
            raise

    async def _streamed(
        self, held: HttpSession, route: str, asked: dict[str, Any], wait_s: float | None, listen: Listener
    ) -> Any:
        """Tell the listener of tokens as they come; after a broken connection go on where it stopped."""
        told: list[int] = []
        clock = asyncio.get_running_loop().time
        late, wait = float("inf"), FIRST_WAIT_S
        while True:
            try:
                return await self._told(held, route, asked, wait_s, listen, told)
            except (EngineDown, EngineFull):
                late = min(late, clock() + self.caller.patience_s)
                if clock() + wait > late:
                    raise
                self.caller.counts["retries"] += 1
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_S)

    async def _told(
        self,
        held: HttpSession,
        route: str,
        asked: dict[str, Any],
        wait_s: float | None,
        listen: Listener,
        told: list[int],
    ) -> Any:
        place = 0
        async for event in self.caller.events(f"{held.url}/engine/{route}", {**asked, "stream": True}, wait_s):
            if "completion" in event:
                done = CompletionWire.model_validate(event["completion"]).plain()
                rest(done, told, listen)
                return event["completion"]
            for token in hear(event):
                tell(token, place, told, listen)
                place += 1
        raise EngineDown("found a stream that ended without its completion; expected one at its end")

    async def _post(
        self,
        held: HttpSession,
        route: str,
        body: Mapping[str, Any],
        *,
        wait_s: float | None = None,
        known: bool = False,
    ) -> Any:
        url, headers = f"{held.url}/engine/{route}", {"X-Session-ID": held.name}
        return await self.caller.post(url, body, again=True, wait_s=wait_s, headers=headers, known=known)

    async def _all(self, route: str, body: Mapping[str, Any]) -> None:
        await asyncio.gather(*(self.caller.post(f"{url}/{route}", body, again=True) for url in self.urls))
