"""In: an environment's id and arguments. Out: an Environment, which lists its tasks and makes one Env an episode.

The id and every argument's name are checked here, before anything is played.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.errors import ConfigError
from turnwise.imports import module, nearest
from turnwise.types import Env, Task

BUILT_IN = {
    "babyai": "turnwise.envs.babyai:Babyai",
    "forth": "turnwise.envs.forth:Forth",
    "math": "turnwise.envs.math:Math",
    "passages": "turnwise.envs.passages:Passages",
    "reasoning_gym": "turnwise.envs.reasoning_gym:ReasoningGym",
    "recall": "turnwise.envs.recall:Recall",
    "verifiers": "turnwise.envs.verifiers:Verifiers",
}
"""Built-in ids; a class is imported only when it is asked for."""
OWN = "name your own as 'package.module:Class' or 'file.py:Class'"


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment's class together with the arguments it is given every time."""

    id: str
    make: Any
    """The class. Its constructor and its `tasks` take `args`, which the protocol Env does not know of."""
    args: Mapping[str, Any]

    def tasks(self) -> Iterable[Task]:
        """Every task from the start, in the environment's own order; may be endless."""
        tasks: Iterable[Task] = self.make.tasks(**self.args)
        return tasks

    def new(self) -> Env:
        """A fresh Env for one episode."""
        env: Env = self.make(**self.args)
        return env


def find(id: str, args: Mapping[str, Any]) -> Environment:
    """The environment behind an id: find("babyai", {"level": "BabyAI-GoToObj-v0"}).new() can be started."""
    place, _, name = BUILT_IN.get(id, id).rpartition(":")
    if not place:
        raise ConfigError(
            f"found environment {id!r}; expected one of {', '.join(sorted(BUILT_IN))}{nearest(id, BUILT_IN)}, or {OWN}"
        )
    held = module(place, OWN)
    made = getattr(held, name, None)
    if not isinstance(made, type):
        classes = [n for n, member in vars(held).items() if inspect.isclass(member)]
        raise ConfigError(f"found no class {name!r} in {place}; it holds {sorted(classes)}{nearest(name, classes)}")
    missing = [verb for verb in ("tasks", "start", "step", "close") if not callable(getattr(made, verb, None))]
    if missing:
        raise ConfigError(f"{id} lacks {missing}; expected the methods of turnwise.types.Env")
    found = Environment(id, made, dict(args))
    for taker in (found.make, found.make.tasks):
        _check(id, taker, args)
    return found


def _check(id: str, taker: Callable[..., Any], args: Mapping[str, Any]) -> None:
    """Refuse arguments that `taker` does not take, and a lack of those it must have."""
    parameters = inspect.signature(taker).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for wrong in [a for a in args if a not in names]:
            raise ConfigError(f"{id} takes no argument {wrong!r}{nearest(wrong, names)}; it takes {names}")
    needed = [p.name for p in parameters if p.name in names and p.default is p.empty and p.name not in args]
    if needed:
        raise ConfigError(f"{id} needs {needed}; set them under env.args")
