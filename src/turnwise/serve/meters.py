"""What /metrics tells: requests and their seconds by route, and every number of the engine's stats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from turnwise.serve.server import Server

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Meters(Collector):
    """Counters of one server, in a registry of its own, so that two servers in a process stay apart."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.registry = CollectorRegistry()
        self.requests = Counter("turnwise_requests", "Requests answered", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "turnwise_request_seconds", "From request to last byte", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.first = Histogram(
            "turnwise_first_token_seconds", "To the first token of a stream", buckets=SECONDS, registry=self.registry
        )
        self.prompt_tokens = Counter("turnwise_prompt_tokens", "Tokens of prompts asked with", registry=self.registry)
        self.sampled_tokens = Counter("turnwise_completion_tokens", "Tokens answered", registry=self.registry)
        self.compactions = Counter("turnwise_compactions", "Compaction events answered", registry=self.registry)
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Numbers that are read when they are asked for."""
        server = self.server
        yield GaugeMetricFamily("turnwise_running_requests", "Requests being answered", server.running)
        yield GaugeMetricFamily("turnwise_held_sessions", "Sessions held open for clients", len(server.sessions))
        yield GaugeMetricFamily("turnwise_idle_closed_sessions", "Sessions closed idle", server.sessions.closed_idle)
        for name, value in sorted(server.engine.stats().items()):
            plain = re.sub(r"\W", "_", name)
            yield GaugeMetricFamily(f"turnwise_engine_{plain}", f"The engine's {name.replace('_', ' ')}", value)

    def total(self) -> float:
        """Requests answered so far."""
        return sum(
            sample.value
            for metric in self.requests.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        )

    def page(self) -> bytes:
        return generate_latest(self.registry)
