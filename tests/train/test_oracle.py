"""The oracle's bonus: scored behind what the policy was not told, clipped, and part of the advantage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from played import played, tight, turn
from turnwise.config.loss import GrpoConfig
from turnwise.config.run import OracleConfig, TrainConfig
from turnwise.errors import DataError, RunError
from turnwise.losses import choose
from turnwise.rows import Row
from turnwise.testing import tiny_model
from turnwise.text import ChatML
from turnwise.train import Oracle, Tally, Trainer, batch
from turnwise.train.oracle import told
from turnwise.types import Trajectory

HINT = [{"role": "system", "content": "left"}]
ADVANTAGE = np.array([0.5, -0.5, 1.0, -1.0], np.float32)


def episodes() -> list[Trajectory]:
    """2 groups of 2 siblings of 2 turns that share their prompt; supports on some tokens, temperatures other than 1."""
    rng, found = np.random.default_rng(0), []
    for n in range(4):
        group, sibling = divmod(n, 2)
        prompt, said, more = [1, 60 + group, 5], rng.integers(3, 259, 3).tolist(), rng.integers(3, 259, 2).tolist()
        support = tight([], [said[1], 9, 10], [])
        first = turn(prompt, said, rng.uniform(-6, -4, 3).tolist(), temperature=0.7, support=support)
        second = turn([*prompt, *said, 8 + sibling], more, rng.uniform(-6, -4, 2).tolist())
        made = played(first, second, group=group, sibling=sibling, reward=float(sibling))
        found.append(replace(made, oracle=HINT))
    return found


def rows_of(found: Sequence[Trajectory], **layout: Any) -> list[Row]:
    return batch(found, ADVANTAGE, range(4), TrainConfig(**layout))[0]


def oracle(coef: float = 0.5, row_tokens: int = 4096, **config: float) -> Oracle:
    policy = tiny_model()
    return Oracle(OracleConfig(coef=coef, **config), policy, ChatML(policy.tokenizer), row_tokens)


def by_reply(rows: Sequence[Row], field: str) -> dict[tuple[int, int], list[float]]:
    """Numbers of each reply's entries, in order."""
    found: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        e = row.entries
        for n in np.argsort(row.positions[e.at], kind="stable"):
            found.setdefault((int(e.trajectory[n]), int(e.turn[n])), []).append(float(getattr(e, field)[n]))
    return found


def plain(judge: Oracle, who: Trajectory, number: int) -> list[float]:
    """coef x clip(logp_oracle - sampler_logp) of a turn, read alone by the unpacked model."""
    t = who.turns[number]
    ids = np.concatenate([judge.renderer.render_ids(HINT), t.prompt_ids, t.completion_ids])
    with torch.no_grad():
        logits = judge.policy.model(torch.from_numpy(ids).long()[None]).logits[0, -len(t.completion_ids) - 1 : -1]
    found = []
    for n, token in enumerate(t.completion_ids.tolist()):
        allowed = (t.support.of(n).tolist() if t.support else []) or list(range(judge.policy.vocab))
        logp = float((logits[n, allowed] / t.temperature).log_softmax(0)[allowed.index(token)])
        apart = min(max(logp - float(t.logprobs[n]), -judge.config.clip), judge.config.clip)
        found.append(judge.config.coef * apart)
    return found


@pytest.mark.parametrize("layout", [{"row_tokens": 12, "share": "trajectory"}, {"row_tokens": 20}, {}], ids=str)
@pytest.mark.parametrize("clip", [0.3, 100.0])
def test_the_bonus_is_that_of_every_turn_read_alone_behind_the_oracle(layout: Any, clip: float) -> None:
    judge, found = oracle(clip=clip, row_tokens=layout.get("row_tokens", 4096)), episodes()
    before = rows_of(found, **layout)
    rows, counts = judge.add(before, found)
    expected = {(n, i): plain(judge, t, i) for n, t in enumerate(found) for i in range(2)}
    bonus, advantage, plainly = by_reply(rows, "bonus"), by_reply(rows, "advantage"), by_reply(before, "advantage")
    assert bonus.keys() == expected.keys()
    for key, values in expected.items():
        assert bonus[key] == pytest.approx(values, abs=1e-4)
        assert advantage[key] == pytest.approx([a + b for a, b in zip(plainly[key], bonus[key], strict=True)])
    assert counts == {"oracle/tokens": 20, "oracle/dropped/under_reward": 0, "oracle/dropped/no_context": 0}


def test_trajectories_under_the_reward_threshold_and_without_an_oracle_get_none_and_are_counted() -> None:
    found = episodes()
    found[3].oracle = []
    rows, counts = oracle(min_reward=0.5).add(rows_of(found), found)
    zero = {key: set(values) == {0.0} for key, values in by_reply(rows, "bonus").items()}
    assert zero == {(n, i): n != 1 for n in range(4) for i in range(2)}
    assert counts == {"oracle/tokens": 5, "oracle/dropped/under_reward": 10, "oracle/dropped/no_context": 5}


def gradient(rows: Sequence[Row]) -> tuple[Tensor, dict[str, float]]:
    """Of an update with the rows: its direction in one weight, and its metrics."""
    trainer, tally, found = Trainer(tiny_model(), TrainConfig(max_grad_norm=1e9), choose(GrpoConfig())), Tally(), []
    weight = next(iter(trainer.policy.model.parameters()))
    weight.register_post_accumulate_grad_hook(lambda w: found.append(w.grad.clone()))
    trainer.update(rows, 0, tally)
    return found[-1], tally.metrics()


def test_the_bonus_changes_the_gradient_and_its_mean_is_a_metric() -> None:
    found = episodes()
    plainly, told_ = gradient(rows_of(found)), gradient(oracle().add(rows_of(found), found)[0])
    assert float((plainly[0] - told_[0]).norm()) > 0.05 * float(plainly[0].norm())
    bonus = [b for values in by_reply(oracle().add(rows_of(found), found)[0], "bonus").values() for b in values]
    assert told_[1]["oracle/bonus"] == pytest.approx(float(np.mean(bonus)), rel=1e-4)
    assert "oracle/bonus" not in plainly[1]


def test_a_step_without_any_oracle_message_ends_the_run() -> None:
    found = [replace(t, oracle=[]) for t in episodes()]
    with pytest.raises(RunError, match=r"found oracle\.coef 0\.5 and no oracle messages in 4 episodes"):
        oracle().add(rows_of(found), found)


def test_the_environment_s_messages_come_before_the_task_s_and_a_text_is_a_system_message() -> None:
    (who, *_), given = episodes(), [{"role": "user", "content": "right"}]
    task = replace(who.task, data={"oracle": given})
    assert told(replace(who, task=task)) == HINT
    assert told(replace(who, task=task, oracle=[])) == given
    assert told(replace(who, task=replace(task, data={"oracle": "left"}), oracle=[])) == HINT
    assert told(replace(who, task=replace(task, data={}), oracle=[])) == []
    with pytest.raises(DataError, match="task toy/0: found oracle 5; expected a text, or a list of messages"):
        told(replace(who, task=replace(task, data={"oracle": 5}), oracle=[]))
