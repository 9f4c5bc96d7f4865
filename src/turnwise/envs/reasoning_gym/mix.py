"""Which datasets questions come from, and how often each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from turnwise.errors import ConfigError
from turnwise.imports import nearest
from turnwise.types import Task


@dataclass(frozen=True, slots=True)
class Part:
    """A dataset of a mix."""

    name: str
    weight: float
    config: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The name, and what stands for its settings where it has some: "countdown", "countdown-1f0c22"."""
        if not self.config:
            return self.name
        text = json.dumps(dict(self.config), sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


MIXES: dict[str, list[dict[str, Any]]] = {
    "rg-mix": [
        {"name": "arc_1d", "weight": 0.4016},
        {"name": "sokoban", "weight": 0.3101, "config": {"min_boxes": 6, "min_w": 8, "min_h": 8}},
        {"name": "countdown", "weight": 0.30, "config": {"min_numbers": 7, "max_numbers": 7}},
        {"name": "zebra_puzzles", "weight": 0.2510, "config": {"num_people": 7, "num_characteristics": 7}},
        {"name": "cryptarithm", "weight": 0.1882},
    ]
}
"""Mixes with a name. The weights of rg-mix are one over the share of answers that are right at the first try."""
FIELDS = ("name", "weight", "config")


def parts(datasets: str | Sequence[Mapping[str, Any]], known: Sequence[str]) -> list[Part]:
    """What a config names: a dataset, a mix with a name, or a list of datasets with weights."""
    if isinstance(datasets, str):
        listed = MIXES.get(datasets, [{"name": datasets}])
    else:
        listed = [dict(part) for part in datasets]
    if not listed:
        raise ConfigError("found datasets []; expected the name of one, or a list such as [{ name = 'countdown' }]")
    return [_part(part, known) for part in listed]


def _part(part: Mapping[str, Any], known: Sequence[str]) -> Part:
    wrong = sorted(set(part) - set(FIELDS))
    if wrong or "name" not in part:
        raise ConfigError(f"found {dict(part)} in datasets; expected name, and if wanted weight and config")
    name, weight = part["name"], part.get("weight", 1.0)
    if name not in known:
        expected = f"one of the {len(known)} of reasoning-gym or a mix of {sorted(MIXES)}"
        raise ConfigError(f"found dataset {name!r}{nearest(str(name), [*known, *MIXES])}; expected {expected}")
    if not isinstance(weight, int | float) or not weight > 0:
        raise ConfigError(f"found weight {weight!r} of {name}; expected a number above 0")
    return Part(name, float(weight), dict(part.get("config") or {}))


def tasks(mix: Sequence[Part], seed: int) -> Iterator[Task]:
    """Tasks without end; the n-th comes from the same dataset every time, and is the next one of it.

    With weights 2 and 1 of a and b: a/0 b/0 a/1 a/2 a/3 b/1 ...
    """
    taken = dict.fromkeys([part.kind for part in mix], 0)
    for n in count():
        part = Random(f"reasoning_gym/{seed}/{n}").choices(mix, [p.weight for p in mix])[0]
        index = taken[part.kind]
        taken[part.kind] += 1
        data = {"dataset": part.name, "config": dict(part.config), "seed": seed, "index": index}
        yield Task(f"reasoning_gym/{part.kind}/{seed}/{index}", data)
