"""One trajectory's tokens as columns: each token of its tree once, with where it stands and who wrote it.

A number that does not exist for a token is NaN, a count -1, a name None; `tokens` writes them all as null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.rows.seen import Seen
from turnwise.trees import Tree, merge
from turnwise.types import Entries, Floats, Ids, Trajectory, Turn

Columns = dict[str, NDArray[Any]]
GIVEN = ("advantage", "weight", "start_logp", "ref_logp", "teacher_logp", "bonus")
"""What entries carry besides what was sampled."""
FOUND = ("trainer_logp", "ratio", "entropy", "plain_logp", "plain_entropy")
"""What the trainer finds for entries, whatever the loss; the loss's own marks come behind."""
ECHO = ("echo_alpha", "echo_weight")


def columns(trajectory: Trajectory) -> tuple[Columns, list[Ids]]:
    """The tokens in the order of their branches, and for each turn where the tokens of its path stand.

    Turns (reads 1 2, writes 3) and (reads 1 2 9, writes 6): ids 1 2 3 9 6, branches 0 0 1 2 2, turns 0 0 0 1 1; the
    second turn's path is 0 1 3 4.
    """
    trees = merge([trajectory])
    paths: list[Ids] = [np.zeros(len(t.ids), np.int32) for t in trajectory.turns]
    parts, rows, branches = [], 0, 0
    for tree in trees:
        for path in tree.turns:
            own = int(path.first > 0)  # what a path behind an event begins with, stands on the one before it
            paths[path.turn][path.index[own:]] = path.at[own:] + np.int32(rows)
        parts.append(_tree(tree, trajectory.turns))
        parts[-1]["branch"] += branches
        rows, branches = rows + len(tree), int(parts[-1]["branch"].max()) + 1
    if not parts:
        return {}, paths
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, paths


def _tree(tree: Tree, turns: Sequence[Turn]) -> Columns:
    turn, offset = _first_read(tree)
    found: Columns = {"turn": turn, "branch": branches(tree), "position": tree.positions, "id": tree.ids}
    found |= _writers(turn, offset, turns)
    found |= _sampled(tree.entries, len(tree))
    return found


def _first_read(tree: Tree) -> tuple[Ids, Ids]:
    """The turn that sampled a token or else was the first to read it, and the token's place in that turn; -1 for what
    was read again after an event."""
    turn, offset = np.full(len(tree), tree.turns[0].turn, np.int32), np.full(len(tree), -1, np.int32)
    for path in reversed(tree.turns):
        turn[path.at], offset[path.at] = path.turn, path.index
    for path in tree.turns:
        own = np.intersect1d(tree.entries.at[tree.entries.turn == path.turn], path.at)
        turn[own], offset[own] = path.turn, path.index[np.searchsorted(path.at, own)]
    return turn, offset


def branches(tree: Tree) -> Ids:
    """The branch of each token, numbered in the order in which the tree is laid out.

    Paths [0, 2] [2, 4] and [0, 2] [4, 6]: 0 0 1 1 2 2. A stretch that only one other continues is one branch with it.
    """
    pairs = [pair for path in tree.turns for pair in pairwise(path.spans[:, 0].tolist())]
    above = {start: parent for parent, start in pairs}
    children = Counter(above.values())
    found, numbers, last = np.zeros(len(tree), np.int32), dict[int, int](), -1
    for start in sorted({0, *above}):
        if start in above and children[above[start]] == 1:
            numbers[start] = numbers[above[start]]
        else:
            last = numbers[start] = last + 1
        found[start:] = numbers[start]
    return found


def _writers(turn: Ids, offset: Ids, turns: Sequence[Turn]) -> Columns:
    """Message, role, tool and body of each token; what was sampled is an assistant's message."""
    message, body = np.full(len(turn), -1, np.int32), np.full(len(turn), -1, np.int8)
    role, tool = np.full(len(turn), None, object), np.full(len(turn), None, object)
    for number in np.unique(turn):
        known, size = turns[number].attribution, len(turns[number].prompt_ids)
        read = np.flatnonzero((turn == number) & (offset >= 0) & (offset < size))
        said = np.flatnonzero((turn == number) & (offset >= size))
        role[said], body[said] = "assistant", 1
        if known is not None:
            message[said] = len(known.roles)
            message[read], body[read] = known.message[offset[read]], known.body[offset[read]]
            named = read[message[read] >= 0]
            role[named] = np.array(known.roles, object)[message[named]]
            tool[named] = np.array(known.tools, object)[message[named]]
    return {"message": message, "role": role, "tool": tool, "body": body}


def _sampled(e: Entries, size: int) -> Columns:
    """What the sampler recorded; context has none of it."""
    kind = np.full(size, "context", object)
    kind[e.at] = "sampled"
    found: Columns = {"kind": kind}
    for name, values in (("sampler_logp", e.sampler_logp), ("temperature", e.temperature)):
        found[name] = np.full(size, np.nan, np.float32)
        found[name][e.at] = values
    allowed = np.diff(e.support.offsets)
    for name, counts in (("version", e.version), ("support", np.where(allowed > 0, allowed, -1))):
        found[name] = np.full(size, -1, np.int32)
        found[name][e.at] = counts
    return found


def trained(found: Columns, paths: Sequence[Ids], number: int, seen: Sequence[Seen]) -> None:
    """Fill in what the trainer found for the trajectory that its rows call `number`."""
    size = len(found["id"])
    marks = dict.fromkeys(name for s in seen for name in s.numbers)
    for name in dict.fromkeys((*GIVEN, *FOUND, *marks, *ECHO)):
        found[name] = np.full(size, np.nan, np.float32)
    for s in seen:
        if s.echo_logp is not None:
            _echoed(found, paths, number, s, s.echo_logp)
            continue
        e = s.row.entries
        own = np.flatnonzero(e.trajectory == number)
        at = _places(s, e.at[own], e.turn[own], number, paths)
        for name in GIVEN:
            values = getattr(e, name)
            if values is not None:
                found[name][at] = values[own]
        for name, values in s.numbers.items():
            found[name][at] = values[own]
        found["ratio"][at] = np.exp(found["trainer_logp"][at] - e.sampler_logp[own])


def _echoed(found: Columns, paths: Sequence[Ids], number: int, seen: Seen, logp: Floats) -> None:
    """Echo tokens were not sampled: they have weights, and a log-probability at temperature 1."""
    echo = seen.row.echo
    own = np.flatnonzero(echo.trajectory == number)
    at = _places(seen, echo.at[own], echo.turn[own], number, paths)
    found["echo_alpha"][at], found["echo_weight"][at] = echo.alpha[own], echo.weight[own]
    found["plain_logp"][at] = logp[own]


def _places(seen: Seen, at: Ids, turn: Ids, number: int, paths: Sequence[Ids]) -> Ids:
    """Where tokens at places of a row stand in the trajectory's own columns: at the same place of the same turn."""
    found = np.zeros(len(at), np.int32)
    for path in seen.row.turns:
        if path.trajectory == number:
            own = (turn == path.turn) & np.isin(at, path.at)
            found[own] = paths[path.turn][path.index[np.searchsorted(path.at, at[own])]]
    return found
