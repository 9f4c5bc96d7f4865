"""The text of hand-built views. Worlds are 9x9 with walls around; x grows to the east, y to the south."""

from __future__ import annotations

from typing import Any

import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Door, Floor, Goal, Key, Lava, Wall

from turnwise.envs.babyai.level import build
from turnwise.envs.babyai.render import describe

EAST, SOUTH, WEST, NORTH = range(4)
CENTRE = (4, 4)


def view(things: dict[tuple[int, int], Any], at: tuple[int, int] = CENTRE, facing: int = EAST, held: Any = None) -> str:
    world = build("BabyAI-GoToRedBallNoDists-v0", seed=0)
    world.grid = Grid(9, 9)
    world.grid.wall_rect(0, 0, 9, 9)
    for (x, y), thing in things.items():
        world.grid.set(x, y, thing)
    world.agent_pos, world.agent_dir, world.carrying = at, facing, held
    return describe(world.gen_obs()["image"])


@pytest.mark.parametrize(
    ("facing", "lines"),
    [
        (EAST, ["a green box 3 steps forward", "a red ball 2 steps forward and 1 step right", "a wall 3 steps left"]),
        (
            SOUTH,
            [
                "a red ball 1 step forward and 2 steps left",
                "a blue key 1 step forward and 2 steps right",
                "a green box 3 steps left",
                "a wall 5 steps forward",
            ],
        ),
        (WEST, ["a blue key 2 steps forward and 1 step left", "a wall 3 steps right", "a wall 4 steps forward"]),
        (NORTH, ["a green box 3 steps right", "a wall 3 steps forward"]),
    ],
)
def test_places_are_told_as_the_agent_faces(facing: int, lines: list[str]) -> None:
    things = {(6, 4): Ball("red"), (2, 4): Key("blue"), (7, 3): Box("green")}
    assert view(things, at=(4, 3), facing=facing).splitlines() == lines


def test_things_come_nearest_first_then_further_ahead_then_left_first() -> None:
    things = {
        (5, 5): Ball("red"),
        (5, 3): Ball("blue"),
        (6, 4): Ball("green"),
        (4, 3): Ball("grey"),
        (7, 1): Key("red"),
    }
    assert view(things).splitlines() == [
        "a grey ball 1 step left",
        "a green ball 2 steps forward",
        "a blue ball 1 step forward and 1 step left",
        "a red ball 1 step forward and 1 step right",
        "a red key 3 steps forward and 3 steps left",
    ]


def test_walls_come_last_nearest_first_and_only_straight_from_the_agent() -> None:
    assert view({}, at=(2, 1)).splitlines() == ["a wall 1 step left", "a wall 6 steps forward"]
    assert view({}, at=(6, 7), facing=WEST).splitlines() == ["a wall 1 step left", "a wall 6 steps forward"]
    assert view({}, at=(7, 7)).splitlines() == ["a wall 1 step forward", "a wall 1 step right"]


def test_a_wall_behind_something_is_not_told() -> None:
    assert view({(6, 4): Ball("red")}, at=(5, 4)) == "a red ball 1 step forward"
    assert view({(6, 4): Lava()}, at=(5, 4)) == "lava 1 step forward"


def test_where_nothing_is_seen_it_says_so() -> None:
    assert view({}, at=(1, 4)) == "nothing in sight"


def test_what_is_carried_comes_first() -> None:
    assert view({(5, 4): Ball("red")}, held=Key("yellow")) == "you carry a yellow key\na red ball 1 step forward"
    assert view({}, at=(1, 4), held=Box("grey")) == "you carry a grey box"


def test_doors_are_told_with_their_state() -> None:
    doors = {
        (5, 4): Door("red", is_open=True),
        (5, 3): Door("blue"),
        (5, 5): Door("green", is_locked=True),
    }
    assert view(doors).splitlines() == [
        "an open red door 1 step forward",
        "a closed blue door 1 step forward and 1 step left",
        "a locked green door 1 step forward and 1 step right",
    ]


def behind(barrier: Any) -> str:
    """The view of a ball two cells behind a full row of walls, with `barrier` in the middle of the row."""
    row: dict[tuple[int, int], Any] = {(5, y): Wall() for y in range(1, 8)}
    return view({**row, (5, 4): barrier, (7, 4): Ball("red")})


def test_nothing_shows_through_walls_and_shut_doors() -> None:
    assert behind(Wall()) == "a wall 1 step forward"
    assert behind(Door("blue")) == "a closed blue door 1 step forward"
    assert behind(Door("blue", is_locked=True)) == "a locked blue door 1 step forward"


def test_things_show_through_an_open_door_and_behind_things() -> None:
    assert behind(Door("blue", is_open=True)) == "an open blue door 1 step forward\na red ball 3 steps forward"
    assert behind(Key("blue")) == "a blue key 1 step forward\na red ball 3 steps forward"


def test_goals_and_lava_are_things_and_coloured_floor_is_not() -> None:
    assert view({(5, 4): Goal()}) == "a green goal 1 step forward"
    assert view({(5, 4): Lava()}) == "lava 1 step forward"
    assert view({(6, 1): Floor("red")}, at=(6, 1)) == view({}, at=(6, 1))
    assert view({(7, 1): Floor("red")}, at=(6, 1)) == "a wall 1 step left\na wall 2 steps forward"
