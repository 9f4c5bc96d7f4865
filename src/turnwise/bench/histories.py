"""Made-up episodes of realistic lengths: what was read and said is random, how histories grow and break is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.types import Ids, Task, Trajectory, Turn, TurnStop


@dataclass(frozen=True, slots=True)
class Shape:
    """How many episodes of how many turns; tokens of the first prompt, of what a turn reads anew and of what it says.

    In `drift` of the turns one token of the reply comes back as another when it is read again. Siblings of a group have
    the first prompt in common.
    """

    groups: int
    siblings: int
    turns: int
    first: int
    read: int
    said: int
    drift: float = 0.0


def histories(shape: Shape, vocab: int, seed: int) -> list[Trajectory]:
    """Episodes in order of their groups; log-probabilities -1, rewards of both signs."""
    draw = np.random.default_rng(seed)
    return [
        _episode(shape, prompt, group, sibling, vocab, draw)
        for group in range(shape.groups)
        for prompt in [_tokens(draw, vocab, shape.first)]
        for sibling in range(shape.siblings)
    ]


def _episode(shape: Shape, prompt: Ids, group: int, sibling: int, vocab: int, draw: np.random.Generator) -> Trajectory:
    turns = []
    for _ in range(shape.turns):
        said = _tokens(draw, vocab, shape.said)
        turns.append(turn(prompt, said))
        again = said.copy()
        if draw.random() < shape.drift:
            place = draw.integers(len(said))
            again[place] = (again[place] + 1) % vocab
        prompt = np.concatenate([prompt, again, _tokens(draw, vocab, shape.read)])
    task = Task(f"made-up/{group}")
    return Trajectory("made-up", task, group, sibling, 0, turns=turns, reward=float(draw.uniform(-0.5, 1.0)))


def _tokens(draw: np.random.Generator, vocab: int, count: int) -> Ids:
    return draw.integers(0, vocab, count).astype(np.int32)


def turn(prompt: Ids, said: Ids) -> Turn:
    logprobs = np.full(len(said), -1.0, np.float32)
    return Turn(prompt, said, logprobs, np.zeros(len(said), np.int32), TurnStop.STOP)


def by_turn(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Every turn as a trajectory of its own."""
    return [replace(t, turns=[turn]) for t in trajectories for turn in t.turns]


def by_break(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """A new trajectory wherever a prompt does not begin with everything that stands.

    Turns (reads 1, says 2), (reads 1 2 3, says 4), (reads 1 2 3 5, says 6) become the first two and the third.
    """
    found = []
    for trajectory in trajectories:
        runs: list[list[Turn]] = []
        for turn in trajectory.turns:
            if runs and _continues(runs[-1][-1], turn):
                runs[-1].append(turn)
            else:
                runs.append([turn])
        found += [replace(trajectory, turns=run) for run in runs]
    return found


def _continues(before: Turn, turn: Turn) -> bool:
    stands = np.concatenate([before.prompt_ids, before.completion_ids])
    return np.array_equal(turn.prompt_ids[: len(stands)], stands)
