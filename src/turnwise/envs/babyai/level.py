"""In: a level's gymnasium name. Out: its world, a MiniGrid environment; the level is checked before anything is made.

MiniGrid's methods carry no types, hence a world is Any: `reset`, `step`, `gen_obs` and plain attributes are used.
"""

from __future__ import annotations

import contextlib
import io
from difflib import get_close_matches
from typing import Any

import gymnasium
import minigrid  # noqa: F401  registers the levels
from gymnasium.envs.registration import EnvSpec, load_env_creator

from turnwise.errors import ConfigError

World = Any
UNWINNABLE = ("MiniGrid-GoToDoor-", "MiniGrid-GoToObject-", "MiniGrid-Playground-")
"""The first two are won only by an action "done" that no other level knows; the last has no goal."""
FAMILIES = ("BabyAI-", "MiniGrid-")


def levels() -> list[str]:
    """The names of all levels that can be won with the six actions."""
    return sorted(name for name in gymnasium.registry if name.startswith(FAMILIES) and not name.startswith(UNWINNABLE))


def spec(level: str) -> EnvSpec:
    """What gymnasium knows of a level; an unknown one is refused with the nearest names."""
    known = levels()
    if level in known:
        return gymnasium.registry[level]
    if level.startswith(UNWINNABLE):
        raise ConfigError(
            f"found level {level!r}; expected one that the six actions can win, such as 'BabyAI-GoToObj-v0'"
        )
    near = get_close_matches(level, known, n=3, cutoff=0.4)
    raise ConfigError(
        f"found level {level!r}; expected a BabyAI or MiniGrid level by its gymnasium name; nearest: {near}"
    )


def build(level: str, seed: int) -> World:
    """A level's world as `seed` makes it.

    It is made from its own class: `gymnasium.make` would add wrappers that text has no use for.
    """
    found = spec(level)
    assert found.entry_point is not None
    creator = found.entry_point if callable(found.entry_point) else load_env_creator(found.entry_point)
    world: World = creator(**found.kwargs)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints every mission it rejects while it looks for one
        world.reset(seed=seed)
    return world
