"""Compaction events to text and back, for the rollout files."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Event

ARRAYS = {"kept": "<i2", "queries": "<i4"}


def dump(events: Sequence[Event]) -> str | None:
    """A JSON list of one object an event; arrays as their shape and little-endian bytes in base64."""
    if not events:
        return None
    return json.dumps([{n: _packed(v) if n in ARRAYS else v for n, v in asdict(e).items()} for e in events])


def parse(text: str | None) -> tuple[Event, ...]:
    """The inverse of `dump`."""
    found: list[dict[str, Any]] = json.loads(text) if text else []
    return tuple(Event(**(e | {name: _unpacked(name, e[name]) for name in ARRAYS})) for e in found)


def _packed(array: NDArray[Any]) -> list[Any]:
    return [list(array.shape), b64encode(np.ascontiguousarray(array).tobytes()).decode()]


def _unpacked(name: str, value: list[Any]) -> NDArray[Any]:
    shape, data = value
    return np.frombuffer(b64decode(data), np.dtype(ARRAYS[name])).reshape(shape).copy()
