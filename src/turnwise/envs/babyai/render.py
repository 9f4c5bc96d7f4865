"""In: the image of MiniGrid's `gen_obs`, a 7x7 view. Out: its text, one line a thing.

The image is indexed [column, row, (type, colour, state)]; the agent stands in the middle of the last row and looks
towards row 0. Cells the agent can not see are of type "unseen", so nothing hidden can reach the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX
from numpy.typing import NDArray

Image = NDArray[np.uint8]
SCENERY = {"unseen", "empty", "wall", "floor", "agent"}
"""Types that are not listed as things; walls have lines of their own."""
STATES = {index: name for name, index in STATE_TO_IDX.items()}
AHEAD, LEFT, RIGHT = (1, 0), (0, -1), (0, 1)
"""Directions as (forward, right)."""


def describe(image: Image) -> str:
    """The whole view: what is carried, then things nearest first, then walls nearest first.

    A red ball one row up and two columns to the left of an agent that faces a wall, keys in hand:
        you carry a blue key
        a red ball 1 step forward and 2 steps left
        a wall 3 steps forward
    """
    here = _cell(image, 0, 0)
    carried = [] if _kind(here) in SCENERY else [f"you carry {_name(here)}"]
    lines = [f"{name} {_offset(forward, right)}" for name, forward, right in [*_things(image), *_walls(image)]]
    return "\n".join(carried + lines) or "nothing in sight"


def _things(image: Image) -> list[tuple[str, int, int]]:
    """Name, steps forward and steps right of all things in view, by steps away, then further ahead, then left first."""
    width, depth, _ = image.shape
    spots = [(forward, right) for forward in range(depth) for right in range(-(width // 2), width // 2 + 1)]
    spots.sort(key=lambda spot: (spot[0] + abs(spot[1]), -spot[0], spot[1]))
    found = ((_cell(image, *spot), *spot) for spot in spots if spot != (0, 0))
    return [(_name(cell), forward, right) for cell, forward, right in found if _kind(cell) not in SCENERY]


def _walls(image: Image) -> list[tuple[str, int, int]]:
    """The wall ahead, to the left and to the right, each where only free cells lie between, nearest first."""
    walls = []
    for forward, right in (AHEAD, LEFT, RIGHT):
        for steps, cell in enumerate(_ray(image, forward, right), start=1):
            if _kind(cell) == "wall":
                walls.append(("a wall", steps * forward, steps * right))
            if _kind(cell) not in {"empty", "floor"}:
                break
    return sorted(walls, key=lambda wall: abs(wall[1]) + abs(wall[2]))


def _ray(image: Image, forward: int, right: int) -> Iterator[Image]:
    """The cells in one direction from the agent to the edge of the view."""
    width, depth, _ = image.shape
    reach = depth - 1 if forward else width // 2
    return (_cell(image, steps * forward, steps * right) for steps in range(1, reach + 1))


def _cell(image: Image, forward: int, right: int) -> Image:
    width, depth, _ = image.shape
    cell: Image = image[width // 2 + right, depth - 1 - forward]
    return cell


def _kind(cell: Image) -> str:
    return IDX_TO_OBJECT[int(cell[0])]


def _name(cell: Image) -> str:
    """A thing with its article: "a red ball", "an open blue door", "lava"."""
    kind, colour = _kind(cell), IDX_TO_COLOR[int(cell[1])]
    if kind == "lava":
        return "lava"
    words = f"{STATES[int(cell[2])]} {colour} door" if kind == "door" else f"{colour} {kind}"
    return f"an {words}" if words.startswith("o") else f"a {words}"


def _offset(forward: int, right: int) -> str:
    """Where something is, without the part that is zero: _offset(2, -1) is "2 steps forward and 1 step left"."""
    parts = [(forward, "forward"), (abs(right), "left" if right < 0 else "right")]
    return " and ".join(f"{n} step{'s' if n > 1 else ''} {way}" for n, way in parts if n)
