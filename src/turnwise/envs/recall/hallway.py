"""A MiniGrid world: a hallway one cell wide that ends in a T, with things in niches along its walls.

Five steps long, with one niche, the agent `>` facing the end:

    . . . . . . . #
    # # # N # # . #
    > . . . . . . #
    # # # # # # . #
"""

from __future__ import annotations

from collections.abc import Sequence

from minigrid.core.constants import COLOR_NAMES
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Box, Key, Wall
from minigrid.minigrid_env import MiniGridEnv

KINDS = {"ball": Ball, "box": Box, "key": Key}
THINGS = tuple((kind, colour) for kind in KINDS for colour in COLOR_NAMES)
"""What may stand in a niche."""
Niche = tuple[int, int, tuple[str, str]]
"""Steps from the start, side (-1 left, 1 right), and what stands there."""
MIDDLE, START = 2, 1
"""The hallway's row, and the column it begins in."""


class Hallway(MiniGridEnv):
    """`length` steps forward lead to the end, where one step left or right leaves it."""

    def __init__(self, length: int, niches: Sequence[Niche], max_steps: int) -> None:
        self.length = length
        self.niches = niches
        space = MissionSpace(mission_func=lambda: "leave the hallway on the right side")
        super().__init__(mission_space=space, width=START + length + 2, height=2 * MIDDLE + 1, max_steps=max_steps)

    def _gen_grid(self, width: int, height: int) -> None:
        self.mission = "leave the hallway on the right side"
        self.grid = Grid(width, height)
        for x in range(width):
            for y in range(height):
                if not (self._hall(x, y) or self._arm(x, y)):
                    self.grid.set(x, y, Wall())
        for steps, side, (kind, colour) in self.niches:
            self.grid.set(START + steps, MIDDLE + side, KINDS[kind](colour))
        self.agent_pos, self.agent_dir = (START, MIDDLE), 0

    def _hall(self, x: int, y: int) -> bool:
        return y == MIDDLE and START <= x <= START + self.length

    def _arm(self, x: int, y: int) -> bool:
        return x == START + self.length and abs(y - MIDDLE) == 1

    @property
    def at_end(self) -> bool:
        """Whether the agent stands where the arms meet."""
        return tuple(map(int, self.agent_pos)) == (START + self.length, MIDDLE)

    @property
    def taken(self) -> str | None:
        """The arm the agent has stepped into, if any."""
        away = int(self.agent_pos[1]) - MIDDLE
        return {-1: "left", 0: None, 1: "right"}[away]
