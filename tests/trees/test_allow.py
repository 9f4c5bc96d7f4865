"""The filter's contract: it narrows, and whatever else it returns is an error that says what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from echoed import chosen, dropped, reads
from played import played
from turnwise.errors import ConfigError, DataError
from turnwise.types import Trajectory

EPISODE = played(
    reads(("user", [5, 6]), wrote=[7]), reads(("user", [5, 6]), ("assistant", [7]), ("user", [8]), wrote=[9])
)


def whole(trajectory: Trajectory) -> list[np.ndarray]:
    return [np.ones(len(t.prompt_ids) + len(t.completion_ids), np.bool_) for t in trajectory.turns]


def without(trajectory: Trajectory, token: int) -> list[list[bool]]:
    """All but one token, as plain lists."""
    return [[bool(i != token) for i in [*t.prompt_ids, *t.completion_ids]] for t in trajectory.turns]


def last_turn_only(trajectory: Trajectory) -> list[np.ndarray]:
    return [m & (n == len(trajectory.turns) - 1) for n, m in enumerate(whole(trajectory))]


def broken(trajectory: Trajectory) -> list[np.ndarray]:
    raise ZeroDivisionError("the filter's own")


def answer(make: Callable[[], Any]) -> Callable[[Trajectory], Any]:
    return lambda _: make()


no_list = answer(lambda: {0: True})
none = answer(lambda: None)
one_array = answer(lambda: np.ones((2, 5), np.bool_))
too_few = answer(lambda: [[True] * 5])
no_mask = answer(lambda: [True, [True] * 8])
text = answer(lambda: ["11111", "11111111"])
short = answer(lambda: [[True] * 5, np.ones(7, np.bool_)])
prompt_only = answer(lambda: [[True] * 4, [True] * 7])
numbers = answer(lambda: [[True] * 5, [True] * 8 + [1]])
ints = answer(lambda: [np.ones(5, np.int64), np.ones(9, np.bool_)])
floats = answer(lambda: [np.ones(5), np.ones(9)])
square = answer(lambda: [np.ones((5, 1), np.bool_), np.ones(9, np.bool_)])
nones = answer(lambda: [[True] * 5, [None] * 9])


def use(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"user": {}, "filter": {"import_path": f"{__file__}:{name}", "kwargs": kwargs}}


def test_a_filter_takes_away_what_its_masks_leave_out_and_nothing_else() -> None:
    choice, tokens = chosen([EPISODE], **use("without", token=6))
    assert (tokens, dropped(choice)) == ([[5, 8]], {"filter": 1, "scaffold": 2})
    assert chosen([EPISODE], **use("whole"))[1] == [[5, 6, 8]]


def test_a_token_that_several_turns_read_echoes_when_the_mask_of_one_of_them_lets_it() -> None:
    choice, tokens = chosen([EPISODE], **use("last_turn_only"))
    assert (tokens, dropped(choice)) == ([[5, 6, 8]], {"scaffold": 2})
    assert {key: p.index.tolist() for key, p in choice.picked.items()} == {(0, 0): [], (0, 1): [1, 2, 6]}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("no_list", "found dict; expected a list of boolean masks, one for each of 2 turns"),
        ("none", "found NoneType; expected a list"),
        ("one_array", "found ndarray; expected a list"),
        ("too_few", "found 1 masks for 2 turns"),
        (("no_mask", "turn 0: found bool; expected a list or a NumPy array of 5 booleans")),
        ("text", "turn 0: found str"),
        ("short", r"turn 1: found 7 entries; expected 9 booleans \(8 prompt tokens \+ 1 sampled\)"),
        ("prompt_only", "turn 0: found 4 entries; expected 5 booleans"),
        ("numbers", "turn 1: found 9 entries with 1 at 8; expected 9 booleans"),
        ("ints", "turn 0: found 5 entries with dtype int64; expected 5 booleans"),
        ("floats", "turn 0: found 5 entries with dtype float64"),
        ("square", r"turn 0: found an array of shape \(5, 1\); expected 5 booleans"),
        ("nones", "turn 1: found 9 entries with None at 0"),
    ],
)
def test_anything_but_a_boolean_mask_a_turn_is_an_error_that_names_turn_and_lengths(name: str, found: str) -> None:
    with pytest.raises(DataError, match=f"echo filter .*test_allow.py:{name}.*{found}"):
        chosen([EPISODE], **use(name))


def test_what_a_filter_raises_rises() -> None:
    with pytest.raises(ZeroDivisionError, match="the filter's own"):
        chosen([EPISODE], **use("broken"))
    with pytest.raises(TypeError, match="unexpected keyword argument 'n'"):
        chosen([EPISODE], **use("whole", n=3))


def test_a_filter_that_cannot_be_found_is_named() -> None:
    with pytest.raises(ConfigError, match=r"found no function 'whole_' in .*did you mean 'whole'"):
        chosen([EPISODE], **use("whole_"))
    with pytest.raises(ConfigError, match=r"name env.echo.filter.import_path as 'package.module:function'"):
        chosen([EPISODE], user={}, filter={"import_path": "whole"})
