"""Why each token of a trajectory does not echo, or that it does: by role, tool, body and filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.config.echo import EchoConfig, ToolEcho
from turnwise.errors import DataError
from turnwise.trees.allow import Allow, Mask
from turnwise.types import Attribution, Ids, Trajectory, Turn

Whys = NDArray[np.int8]
Key = tuple[str, str | None, bytes]
"""What a message says: its role, tool and tokens."""


class Why(IntEnum):
    """Why a token does not echo."""

    ECHOES = 0
    FILTER = 1
    TOOL_NAME = 2
    INITIAL_PROMPT = 3
    SHARED = 4
    FIRST_TOKEN = 5
    UNKNOWN_BODY = 6
    SCAFFOLD = 7
    ROLE_OFF = 8
    FAILED = 9
    OVER_BUDGET = 10
    NONE = 127
    """Not text of the environment, or never read."""

    @property
    def key(self) -> str:
        """Its counter."""
        return f"echo/dropped/{self.name.lower()}"


REASONS = [why for why in Why if why not in (Why.ECHOES, Why.NONE)]


class Reading(NamedTuple):
    """How a trajectory went through the places of its group's tree. `why` [places]; `news` holds for each turn which of
    its tokens, prompt and completion, may echo in it: those no turn read before, or those its mask lets through."""

    why: Whys
    read: Mask
    news: list[Ids]


def reading(
    trajectory: Trajectory, places: Sequence[Ids], total: int, config: EchoConfig, allow: Allow | None
) -> Reading:
    """Go through the turns in order, `places` of `total` being where each one's tokens lie. The turn that reads a token
    first says whose it is; what an earlier turn has read is always the beginning of a later one."""
    masks = allow(trajectory) if allow else None
    why, read = np.full(total, Why.NONE, np.int8), np.zeros(total, np.bool_)
    known: dict[Key, Why] = {}
    news: list[Ids] = []
    for number, place in enumerate(places):
        start = int(read[place].sum())
        found, new = _of_turn(trajectory, number, start, config, known)
        known |= new
        why[place[start:]] = found
        read[place] = True
        may = np.arange(len(place)) >= start if masks is None else masks[number]
        news.append(np.flatnonzero(may).astype(np.int32))
    if masks is not None:
        through = np.zeros(total, np.bool_)
        for place, here in zip(places, news, strict=True):
            through[place[here]] = True
        _mark(why, ~through, Why.FILTER)
    return Reading(why, read, news)


def _of_turn(
    trajectory: Trajectory, number: int, start: int, config: EchoConfig, known: dict[Key, Why]
) -> tuple[Whys, dict[Key, Why]]:
    """The reasons of a turn's tokens from `start` on, and the messages among them, with the reason if told again."""
    turn, new = trajectory.turns[number], dict[Key, Why]()
    a, prompt = _attribution(trajectory, number), len(turn.prompt_ids)
    why = _by_message(a, start, config)
    again = Why.INITIAL_PROMPT if number == 0 and not config.initial_prompt else Why.SHARED
    if again is Why.INITIAL_PROMPT:
        _mark(why, np.ones(len(why), np.bool_), again)
    _mark(why, np.arange(start, start + len(why)) == 0, Why.FIRST_TOKEN)
    for key, body, answer in _bodies(turn, a, start):
        if key in known and not answer:
            _mark(why, body, known[key])
        new[key] = known.get(key, again)
    return np.append(why, _of_completion(turn, config)[max(start - prompt, 0) :]), new


def _of_completion(turn: Turn, config: EchoConfig) -> Whys:
    """The policy's own tokens, and notices among them: a user's, of which nobody knows text from template."""
    why = np.full(len(turn.completion_ids), Why.ECHOES if config.assistant else Why.NONE, np.int8)
    if turn.injected is not None:
        why[turn.injected] = Why.UNKNOWN_BODY if config.user else Why.ROLE_OFF
    return why


def _mark(why: Whys, where: Mask, reason: Why) -> None:
    """Take out what would have echoed."""
    why[where & (why == Why.ECHOES)] = reason


def _by_message(a: Attribution, start: int, config: EchoConfig) -> Whys:
    """Prompt tokens by role, tool name and body alone; those outside any message are nobody's text."""
    of_message = np.array([*(_of(role, tool, config) for role, tool in zip(a.roles, a.tools, strict=True)), Why.NONE])
    why, body = of_message.astype(np.int8)[a.message[start:]], a.body[start:]
    off = (why != Why.ECHOES) & (body != 1)
    _mark(why, body == 0, Why.SCAFFOLD)
    _mark(why, body == -1, Why.UNKNOWN_BODY)
    why[off] = Why.NONE
    return why


def _of(role: str, tool: str | None, config: EchoConfig) -> Why:
    table = config.roles.get(role)
    if table is None:
        return Why.NONE if role == "assistant" else Why.ROLE_OFF
    named = isinstance(table, ToolEcho) and table.tool_names is not None and tool not in table.tool_names
    return Why.TOOL_NAME if named else Why.ECHOES


def _bodies(turn: Turn, a: Attribution, start: int) -> Iterator[tuple[Key, Mask, bool]]:
    """Messages with text from `start` on: what they say, which of those tokens it is, and whether they answer a reply.

    What stands behind the prompt's last reply answers it and is new, whatever was said before in the same words.
    """
    message, text = a.message[start:], (a.body == 1) & (a.message >= 0)
    there = np.flatnonzero(np.bincount(a.message[a.message >= 0], minlength=len(a.roles))).tolist()
    last = max((m for m in there if a.roles[m] == "assistant"), default=len(a.roles))
    for m in np.unique(message[text[start:]]).tolist():
        said = turn.prompt_ids[text & (a.message == m)]
        yield (a.roles[m], a.tools[m], said.tobytes()), text[start:] & (message == m), m > last


def _attribution(trajectory: Trajectory, number: int) -> Attribution:
    """The turn's attribution, if it fits its prompt."""
    turn = trajectory.turns[number]
    a, prompt, about = turn.attribution, len(turn.prompt_ids), f"turn {number} of {trajectory.task.key}"
    if a is None:
        raise DataError(
            f"{about}: found no attribution of its {prompt} prompt tokens, and echo has to know who wrote each; "
            "expected turns played with a renderer of turnwise.text (or leave [env.echo] out)"
        )
    if not len(a.message) == len(a.body) == prompt or len(a.roles) != len(a.tools):
        raise DataError(
            f"{about}: found an attribution of {len(a.message)} tokens, {len(a.body)} body marks, {len(a.roles)} roles "
            f"and {len(a.tools)} tool names for {prompt} prompt tokens; expected one of each a token, and as many tool "
            "names as roles"
        )
    return a
