"""Turns whose prompts say who wrote what, made by hand, and what echoes of them as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from played import turn
from turnwise.config.echo import EchoConfig
from turnwise.trees import merge
from turnwise.trees.echo import Choice, Rule, attach, choose
from turnwise.types import Attribution, Echo, Trajectory, Turn

OPEN, REPLY = 1, 2
"""Scaffold before a message, and before a reply."""
Said = tuple[str, Sequence[int]]
"""A role, or `tool:name`, and the message's tokens."""


def reads(*said: Said, wrote: Sequence[int], body: int = 1, **more: Any) -> Turn:
    """reads(("user", [5, 6]), ("assistant", [7]), ("tool:look", [8]), wrote=[9]) has prompt 1 5 6 2 7 1 8 2."""
    ids, message, bodies = [], [], []
    for n, (who, tokens) in enumerate(said):
        ids += [REPLY if who == "assistant" else OPEN, *tokens]
        message += [n] * (1 + len(tokens))
        bodies += [0, *[body] * len(tokens)]
    roles, tools = zip(*((who.partition(":")[0], who.partition(":")[2] or None) for who, _ in said), strict=True)
    a = Attribution(np.array([*message, -1], np.int32), np.array([*bodies, 0], np.int8), roles, tools)
    return turn([*ids, REPLY], wrote, attribution=a, **more)


def chosen(trajectories: Sequence[Trajectory], **config: Any) -> tuple[Choice, list[list[int]]]:
    """What is chosen under [env.echo] `config`, and the tokens that echo in each trajectory, in the order of turns."""
    rule = Rule.of(EchoConfig.model_validate(config))
    choice = choose(trajectories, range(len(trajectories)), rule)
    return choice, [
        [int(i) for n, t in enumerate(who.turns) for i in _ids(t)[choice.picked[number, n].index]]
        if (number, 0) in choice.picked
        else []
        for number, who in enumerate(trajectories)
    ]


def _ids(t: Turn) -> np.ndarray:
    return np.concatenate([t.prompt_ids, t.completion_ids])


def dropped(choice: Choice) -> dict[str, int]:
    """Tokens that do not echo, by reason, without zeros."""
    return {name.removeprefix("echo/dropped/"): n for name, n in choice.dropped.items() if n}


def echo_of(trajectories: Sequence[Trajectory], **config: Any) -> tuple[np.ndarray, Echo]:
    """Ids and echo of the only tree of a group."""
    choice, _ = chosen(trajectories, **config)
    (tree,) = merge(trajectories)
    return tree.ids, attach(tree, choice)[0].echo
