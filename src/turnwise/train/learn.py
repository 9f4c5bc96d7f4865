"""A step's trajectories to updated weights and the step's numbers, whatever the trajectories come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from turnwise.config.run import TrainConfig
from turnwise.rows import Row, Seen
from turnwise.train.batch import batch
from turnwise.train.step import Trainer
from turnwise.train.tally import Tally
from turnwise.trees.echo import Rule
from turnwise.types import Floats, Trajectory


def learn(
    trainer: Trainer,
    trajectories: Sequence[Trajectory],
    advantage: Floats,
    config: TrainConfig,
    reduction: str,
    number: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    rule: Rule | None = None,
    judged: Callable[[list[Row]], list[Row]] = lambda rows: rows,
    seen: list[Seen] | None = None,
    masked: Collection[str] = (),
) -> dict[str, float]:
    """Update the weights, a share of the groups at a time. `judged` is asked about all rows before the first update;
    `seen` collects what the first pass found for every token; what agents named in `masked` sampled is not trained."""
    tally, account = Tally(), Counter[str]()
    parts = [
        batch(trajectories, advantage, members, config, reduction, rule, masked=masked)
        for members in shares(trajectories, config.updates)
    ]
    for _, counts in parts:
        account.update(counts)
    readied = [judged(rows) for rows, _ in parts if rows]
    for n, rows in enumerate(readied * config.passes):
        trainer.update(rows, number, tally, progress, seen if n < len(readied) else None)
    forwarded = max(account["tokens_distinct"], 1)
    samples = {name if name.startswith("echo/") else f"samples/{name}": float(n) for name, n in account.items()}
    return {**tally.metrics(), **samples, "samples/merge_ratio": account["tokens_by_turn"] / forwarded}


def shares(trajectories: Sequence[Trajectory], updates: int) -> list[list[int]]:
    """Whole groups, dealt out: groups 0 1 2 3 in 2 updates are (0, 1) and (2, 3)."""
    groups = sorted({t.group for t in trajectories})
    parts = [set(part.tolist()) for part in np.array_split(np.array(groups), updates)]
    return [[i for i, t in enumerate(trajectories) if t.group in part] for part in parts]
