"""The oracle's bonus: the policy, told what helps, scores its own replies; what it then finds likelier earns more.

The bonus is part of the advantage. Added to the loss it would have no gradient, since neither number depends on the
weights in training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from renderers import Renderer

from turnwise.config.run import OracleConfig
from turnwise.errors import DataError, RunError
from turnwise.model import Policy
from turnwise.rows import Row, pack
from turnwise.train.step import score_row
from turnwise.trees import merge
from turnwise.types import Floats, Ids, Message, Trajectory

Scored = Mapping[tuple[int, int], Floats]
"""By trajectory and turn, a log-probability for each sampled token."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """What a run adds to its advantages."""

    config: OracleConfig
    policy: Policy
    renderer: Renderer
    row_tokens: int

    def add(self, rows: Sequence[Row], trajectories: Sequence[Trajectory]) -> tuple[list[Row], Counter[str]]:
        """The rows with the bonus in their advantages; and how many entries it was not asked for, by reason."""
        context = {n: told(t) for n, t in enumerate(trajectories)}
        if trajectories and not any(context.values()):
            raise RunError(
                f"found oracle.coef {self.config.coef:g} and no oracle messages in {len(trajectories)} episodes; "
                "expected some: from the environment (Observation.oracle, at the start), or `oracle` in a task's data"
            )
        present = {int(n) for row in rows for n in row.entries.trajectory}
        rich = {n for n in present if trajectories[n].reward >= self.config.min_reward}
        asked = {n: self._read(context[n]) for n in sorted(rich) if context[n]}
        found = self._score([trajectories[n] for n in asked], asked)
        counts = Counter({"oracle/tokens": 0, "oracle/dropped/under_reward": 0, "oracle/dropped/no_context": 0})
        for row in rows:
            who = row.entries.trajectory
            counts["oracle/tokens"] += int(np.isin(who, [*asked]).sum())
            counts["oracle/dropped/under_reward"] += int((~np.isin(who, [*rich])).sum())
            counts["oracle/dropped/no_context"] += int((np.isin(who, [*rich]) & ~np.isin(who, [*asked])).sum())
        return [self._with_bonus(row, trajectories, found) for row in rows], counts

    def _read(self, messages: list[Message]) -> Ids:
        listed: Any = messages
        return np.array(self.renderer.render_ids(listed), np.int32)

    @torch.no_grad()
    def _score(self, trajectories: Sequence[Trajectory], context: Mapping[int, Ids]) -> Scored:
        """Log-probabilities behind the oracle's context; siblings share it and their prompt, as in training."""
        numbers = list(context)
        longer = [_behind(context[n], t) for n, t in zip(numbers, trajectories, strict=True)]
        groups = [[i for i, t in enumerate(longer) if t.group == g] for g in dict.fromkeys(t.group for t in longer)]
        trees = [tree for g in groups for tree in merge([longer[i] for i in g], [numbers[i] for i in g])]
        turns = {(n, i): turn for n, t in zip(numbers, longer, strict=True) for i, turn in enumerate(t.turns)}
        found = {key: np.full(len(turn.completion_ids), np.nan, np.float32) for key, turn in turns.items()}
        rows, _ = pack(trees, max([self.row_tokens, *map(len, trees)]))
        for row in rows:
            logp = score_row(self.policy, row).logp_E.cpu().numpy()
            for key, mine, depth in _replies(row):
                found[key][depth - len(turns[key].prompt_ids)] = logp[mine]
        return found

    def _with_bonus(self, row: Row, trajectories: Sequence[Trajectory], found: Scored) -> Row:
        e = row.entries
        apart = np.zeros(len(e), np.float32)
        for (who, turn), mine, depth in _replies(row):
            if (who, turn) in found:
                prompt = len(trajectories[who].turns[turn].prompt_ids)
                apart[mine] = found[who, turn][depth - prompt] - e.sampler_logp[mine]
        assert not np.isnan(apart).any(), "an entry that the oracle did not score"
        bonus = self.config.coef * np.clip(apart, -self.config.clip, self.config.clip).astype(np.float32)
        return replace(row, entries=replace(e, advantage=e.advantage + bonus, bonus=bonus))


def told(trajectory: Trajectory) -> list[Message]:
    """The oracle's messages: the environment's, else those of the task; a text is a system message."""
    given = trajectory.oracle or trajectory.task.data.get("oracle") or []
    if isinstance(given, str):
        return [{"role": "system", "content": given}]
    if not isinstance(given, list | tuple) or not all(isinstance(m, dict) and "role" in m for m in given):
        raise DataError(
            f"task {trajectory.task.key}: found oracle {given!r}; expected a text, or a list of messages such as "
            '{"role": "system", "content": "..."}'
        )
    return list(given)


def _replies(row: Row) -> Iterator[tuple[tuple[int, int], NDArray[np.intp], Ids]]:
    """The row's entries reply by reply: whose turn, which entries, and which of the turn's tokens each is."""
    e = row.entries
    for path in row.turns:
        at = path.at
        own = (e.trajectory == path.trajectory) & (e.turn == path.turn)
        mine = np.flatnonzero(own & np.isin(e.at, at[int(path.first > 0) :]))
        if len(mine):
            yield (path.trajectory, path.turn), mine, path.index[np.searchsorted(at, e.at[mine])]


def _behind(context: Ids, trajectory: Trajectory) -> Trajectory:
    """The same episode behind the context, as if nothing had been taken from any cache; who wrote what is of no use."""
    turns = [
        replace(turn, prompt_ids=np.concatenate([context, turn.prompt_ids]), attribution=None, events=())
        for turn in trajectory.turns
    ]
    return replace(trajectory, turns=turns)
