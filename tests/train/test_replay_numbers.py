"""What is measured, judged and exported of rows that events struck."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compacted import Talk, reply
from played import played
from turnwise.config.loss import DppoConfig
from turnwise.config.run import OracleConfig, TrainConfig
from turnwise.losses import choose
from turnwise.rows import Row, Seen
from turnwise.runs import tokens
from turnwise.testing import tiny_model
from turnwise.text import ChatML
from turnwise.train import Judges, Oracle, Tally, Trainer, batch, judge
from turnwise.train.step import score_row
from turnwise.types import Trajectory

HINT = [{"role": "system", "content": "left"}]


def talk(method: str = "match") -> Trajectory:
    """Two turns, the first struck after its 5th token, the second before it is read."""
    held = Talk(tiny_model(), 2)
    turns = [
        reply(held, list(range(40, 52)), 10, (5, 2, 10), method=method),
        reply(held, [60, 61, 62], 6, (0, 1, 6), method=method),
    ]
    return replace(played(*turns, reward=1.0), oracle=HINT)


def rows_of(one: Trajectory) -> list[Row]:
    return batch([one], np.ones(1, np.float32), [0], TrainConfig())[0]


@pytest.mark.parametrize("method", ["match", "delete_reread"])
def test_the_mismatch_is_told_apart_before_and_after_the_first_event(method: str) -> None:
    one = talk(method)
    for n, by in ((2, 0.25), (7, 0.5)):  # a token before and one after the event, each made to differ
        one.turns[0].logprobs[n] -= by
    trainer, tally = Trainer(tiny_model(), TrainConfig(), choose(DppoConfig())), Tally()
    trainer.accumulate(rows_of(one), tally)
    found = tally.metrics()
    assert found["mismatch/max_before"] == pytest.approx(0.25, abs=1e-4)
    assert found["mismatch/max_after"] == found["mismatch/max"] == pytest.approx(0.5, abs=1e-4)
    assert (tally.counts["mismatch/kl_before"], tally.counts["mismatch/kl_after"]) == (5, 11)


def test_rows_without_events_have_no_such_figures() -> None:
    held, tally = Talk(tiny_model(), 2), Tally()
    trainer = Trainer(tiny_model(), TrainConfig(), choose(DppoConfig()))
    trainer.accumulate(rows_of(played(reply(held, [40, 41], 5))), tally)
    assert {name for name in tally.metrics() if name.startswith("mismatch/")} == {"mismatch/kl", "mismatch/max"}


def test_a_teacher_of_another_shape_reads_the_text_as_nothing_had_been_taken() -> None:
    (row,), teacher = rows_of(talk()), tiny_model(layers=3, kv_heads=1)
    (judged,) = judge([row], Judges(start=tiny_model(), teacher=teacher))
    np.testing.assert_allclose(judged.entries.start_logp, row.entries.sampler_logp, atol=2e-5)
    whole = replace(row, visible_until=row.ends, branch_ends=None, strikes=())
    np.testing.assert_array_equal(judged.entries.teacher_logp, score_row(teacher, whole).logp_E.detach().numpy())


@pytest.mark.parametrize("method", ["match", "delete_reread"])
def test_the_oracle_scores_the_same_tokens_whatever_was_taken_from_the_cache(method: str) -> None:
    one = talk(method)
    plain = replace(one, turns=[replace(t, events=()) for t in one.turns])
    policy = tiny_model()
    judge_ = Oracle(OracleConfig(coef=1.0, clip=99.0), policy, ChatML(policy.tokenizer), 4096)
    found = []
    for which in (one, plain):
        rows, _ = judge_.add(rows_of(which), [which])
        bonus = {
            (int(turn), float(logp)): float(b)
            for row in rows
            for turn, logp, b in zip(row.entries.turn, row.entries.sampler_logp, row.entries.bonus, strict=True)
        }
        found.append([bonus[key] for key in sorted(bonus)])
    np.testing.assert_allclose(found[0], found[1], atol=2e-5)
    assert len(found[0]) == one.sampled_tokens


def test_the_token_table_shows_text_that_was_read_again_as_context_of_nobody() -> None:
    one = talk("delete_reread")
    (row,) = rows_of(one)
    seen = [Seen(row, {"trainer_logp": row.entries.sampler_logp})]
    found = tokens.table(1, {0: one}, seen)
    said = [(row["id"], row["turn"], row["sampler_logp"]) for row in found.to_pylist() if row["kind"] == "sampled"]
    drawn = [
        (int(i), n, float(logp))
        for n, t in enumerate(one.turns)
        for i, logp in zip(t.completion_ids, t.logprobs, strict=True)
    ]
    assert sorted(said) == sorted(drawn)
    sampled = [row for row in found.to_pylist() if row["kind"] == "sampled"]
    assert all(row["trainer_logp"] == row["sampler_logp"] and row["role"] == "assistant" for row in sampled)
    assert len(found) == len(row) > len(one.turns[-1].ids)
