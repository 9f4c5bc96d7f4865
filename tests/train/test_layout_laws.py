"""However trees are shared, split, packed and spread over ranks, loss and gradient are the same."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compacted import Talk, reply
from played import played, turn
from turnwise.config.loss import DppoConfig, GspoConfig
from turnwise.config.run import TrainConfig
from turnwise.losses import choose
from turnwise.rows import Row, balance
from turnwise.testing import tiny_model
from turnwise.train import Tally, Trainer, batch
from turnwise.types import Trajectory

few = st.integers(3, 5)
turns = st.tuples(st.lists(few, min_size=1, max_size=6), st.lists(few, min_size=1, max_size=4))
groups = st.lists(st.lists(turns, min_size=1, max_size=3), min_size=1, max_size=5)
LONGEST = 10
"""Tokens of the longest history: in rows of so many every tree is split as far as it goes, and nothing is lost."""


def episodes(spec: Any) -> list[Trajectory]:
    return [
        played(
            *(turn(p, c, [-5.0 - (k + n) % 3 for k in range(len(c))]) for n, (p, c) in enumerate(said)), group=i // 3
        )
        for i, said in enumerate(spec)
    ]


def learnt(rows: list[Row], loss: Any, gradient: Any = "map") -> tuple[float, torch.Tensor]:
    """The loss of an update and the whole gradient of it."""
    trainer, tally = Trainer(tiny_model(layers=1), TrainConfig(), choose(loss), gradient=gradient), Tally()
    trainer.accumulate(rows, tally)
    grads = [w.grad.flatten() for w in trainer.policy.model.parameters() if w.grad is not None]
    return tally.metrics()["loss/total"], torch.cat(grads)


@settings(max_examples=25, deadline=None)
@given(groups, st.integers(LONGEST, 60), st.sampled_from(["trajectory", "group"]), st.integers(1, 3), st.booleans())
def test_layout_does_not_matter(spec: Any, budget: int, share: Any, ranks: int, sequences: bool) -> None:
    played_, loss = episodes(spec), GspoConfig(low=0.5, high=0.9) if sequences else DppoConfig(kl_tau=0.1)
    advantage, numbers = np.linspace(-1.0, 2.0, len(spec), dtype=np.float32), range(len(spec))
    whole, counts = batch(played_, advantage, numbers, TrainConfig(share="trajectory", row_tokens=4096))
    other, others = batch(played_, advantage, numbers, TrainConfig(share=share, row_tokens=budget), ranks=ranks)
    dealt = [row for rank in balance(other, ranks) for row in rank]
    assert counts["tokens_trained"] == others["tokens_trained"]
    (a, first), (b, second) = learnt(whole, loss), learnt(dealt, loss)
    assert abs(a - b) < 1e-5
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-3)


@lru_cache
def compacted(method: str) -> tuple[Trajectory, ...]:
    """Two groups of siblings with a turn in common, compacted at different tokens; some of them wrong about themselves,
    so that there is something to learn."""
    found = []
    for group, heard in enumerate(([40, 41, 42, 43, 44, 45, 46], [50, 51, 52, 53, 54])):
        root = Talk(tiny_model(layers=1), group)
        shared = reply(root, heard, 8, (5, 2, 8), method=method)
        for n in range(3):
            talk = root.fork(10 * group + n)
            strikes = [(0, 1, 5 + n), (2 + n, 2, 8)][: n + group]
            turns = [
                shared,
                reply(talk, [60 + n % 2, 61], 6, *strikes, method=method),
                reply(talk, [70], 4, method=method),
            ]
            found.append(played(*turns, group=group, sibling=n))
    return tuple(found)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["match", "evict", "delete", "delete_reread"]),
    st.integers(40, 120),
    st.sampled_from(["trajectory", "group"]),
    st.integers(1, 3),
    st.sampled_from(["map", "exact", "none"]),
)
def test_layout_does_not_matter_with_events_either(method: str, budget: int, share: Any, ranks: int, how: str) -> None:
    played_, loss = compacted(method), DppoConfig(kl_tau=0.1)
    advantage, numbers = np.linspace(-1.0, 2.0, len(played_), dtype=np.float32), range(len(played_))
    whole, counts = batch(played_, advantage, numbers, TrainConfig(share="trajectory", row_tokens=4096))
    other, others = batch(played_, advantage, numbers, TrainConfig(share=share, row_tokens=budget), ranks=ranks)
    dealt = [row for rank in balance(other, ranks) for row in rank]
    assert counts["tokens_trained"] == others["tokens_trained"] > 0
    (a, first), (b, second) = learnt(whole, loss, how), learnt(dealt, loss, how)
    assert abs(a - b) < 1e-5
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-3)
