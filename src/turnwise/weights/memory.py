"""Trainer and engine share one model object: publishing moves no weights, it only tells the engine their version."""

from __future__ import annotations

from turnwise.engine import LocalEngine


def publish(engine: LocalEngine, version: int) -> None:
    """After this, sampled tokens carry `version` and live sessions read again what they hold."""
    engine.update(version)
