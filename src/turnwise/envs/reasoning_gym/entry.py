"""Questions of reasoning-gym and the scores of answers to them; run in a process of its own."""

from __future__ import annotations

import base64
import math
import pickle
from functools import lru_cache
from typing import Any

SIZE = 2**31
"""How many entries a dataset is said to have; each is made when it is asked for."""


@lru_cache(maxsize=64)
def _dataset(name: str, config: tuple[tuple[str, Any], ...], seed: int) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, seed=seed, size=SIZE, **dict(config))


@lru_cache(maxsize=1024)
def _entry(name: str, config: tuple[tuple[str, Any], ...], seed: int, index: int) -> Any:
    return _dataset(name, config, seed)[index]


def _key(config: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((key, tuple(value) if isinstance(value, list) else value) for key, value in config.items()))


def run(what: str, name: str, config: dict[str, Any], seed: int, index: int, *given: str) -> Any:
    """ "ask": an entry's question, its answer (None where it has several) and the entry as text; "score": what the
    dataset gives the answer `given[0]` to the entry `given[1]`, in [0, 1]."""
    if what == "ask":
        entry = _entry(name, _key(config), seed, index)
        right = None if entry["answer"] is None else str(entry["answer"])
        return [entry["question"], right, base64.b64encode(pickle.dumps(entry)).decode()]
    answer, held = given
    score = float(_dataset(name, _key(config), seed).score_answer(answer, pickle.loads(base64.b64decode(held))))
    return min(1.0, max(0.0, score)) if math.isfinite(score) else 0.0
