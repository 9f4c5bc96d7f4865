"""Who is next: first come, first served, in turns over clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from turnwise.engine.request import Request


@dataclass(slots=True)
class Line:
    """Requests that wait to be admitted: a client's n-th comes before any other client's n + 1-th.

    a1 a2 a3 b1 come in this order: a1 and b1 are of the first round, so they leave as a1 b1 a2 a3. Whoever comes later
    joins a round after the one that is being admitted, so nobody is passed for ever.
    """

    waiting: list[tuple[int, int, Request]] = field(default_factory=list)
    round: int = 0
    """Of the request that was admitted last."""
    last: dict[str, int] = field(default_factory=dict)
    """The round of each waiting client's last request."""
    arrivals: int = 0

    def join(self, request: Request) -> None:
        client = request.session.client
        number = max(self.round, self.last.get(client, 0)) + 1
        self.last[client] = number
        self.arrivals += 1
        self.waiting.append((number, self.arrivals, request))
        self.waiting.sort(key=lambda entry: entry[:2])

    def head(self) -> Request | None:
        return self.waiting[0][2] if self.waiting else None

    def admit(self) -> Request:
        """Take out the head."""
        self.round, _, request = self.waiting.pop(0)
        self._forget()
        return request

    def drop(self) -> None:
        """Leave out requests that are over."""
        self.waiting = [entry for entry in self.waiting if not entry[2].done.done()]
        self._forget()

    def _forget(self) -> None:
        clients = {request.session.client for request in self}
        self.last = {client: number for client, number in self.last.items() if client in clients}

    def __iter__(self) -> Iterator[Request]:
        return (request for _, _, request in self.waiting)

    def __len__(self) -> int:
        return len(self.waiting)
