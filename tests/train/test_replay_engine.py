"""What the engine samples with a compacted cache, the trainer computes in one forward: with notices, with choices, in a
whole run."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from played import played
from small import config as small_config
from small import numbers
from turnwise.config.compaction import CompactionConfig, RolloutConfig
from turnwise.config.run import EnvConfig, EvalConfig, SamplingConfig
from turnwise.engine import LocalEngine
from turnwise.loop import train
from turnwise.reporter import Silent
from turnwise.rows import pack
from turnwise.runs import RunFolder, rollouts
from turnwise.testing import byte_tokenizer, tiny_model
from turnwise.text import ChatML
from turnwise.text.notice import notice_ids
from turnwise.train.step import score_row
from turnwise.trees import merge
from turnwise.types import Budget, Compaction, Notice, Sampling, Segments, Settings, Turn

CHATML = ChatML(byte_tokenizer())
SMALL = Settings(recent=4)


def test_a_notice_is_the_end_of_a_reply_a_user_s_message_and_the_beginning_of_another() -> None:
    said = CHATML.tokenizer.decode(notice_ids(CHATML, "9 left"))
    assert said == "<|im_end|>\n<|im_start|>user\n9 left<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("rule", [Budget(60), Budget(70, window=20, protect_tokens=8), Segments(16, protect_tokens=4)])
@pytest.mark.parametrize("notice", [None, Notice("{remaining} left", every=12), Notice()])
@torch.no_grad()
def test_events_and_notices_within_a_reply_are_replayed_exactly(rule: Any, notice: Notice | None) -> None:
    policy = tiny_model()

    async def sampled() -> list[Turn]:
        engine = LocalEngine(policy, write_notice=lambda text: notice_ids(CHATML, text))
        plan = Compaction(rule, SMALL, protect=5, notice=notice)
        session = await engine.open(list(range(40, 70)), Sampling(max_tokens=150), seed=3, compaction=plan)
        turns = []
        for new in ([], list(range(80, 95))):
            prompt = [*session.ids, *new]
            turns.append(Turn.of(np.array(prompt, np.int32), await engine.step(session, new)))
        return turns

    turns = asyncio.run(sampled())
    talk = played(*turns)
    assert turns[-1].events
    told = sum(int(t.injected.sum()) for t in turns if t.injected is not None)
    assert (told > 0) == (notice is not None)
    (row,) = pack(merge([talk]), 9999)[0]
    assert len(row.entries) == talk.sampled_tokens == sum(len(t.completion_ids) for t in turns) - told
    assert np.abs(score_row(policy, row).logp_E.numpy() - row.entries.sampler_logp).max() < 2e-5


CHOICES = EnvConfig(
    group=2,
    max_turns=4,
    args={"max_steps": 4},
    sampling=SamplingConfig(choices=["turn left", "turn right", "go forward"]),
)


@pytest.mark.parametrize(
    "how",
    [
        {"max_kv_tokens": 110},
        {"trigger": "turns", "protect_turns": 1, "method": "evict"},
        {"max_kv_tokens": 110, "method": "delete_reread", "carry_tail": 8},
    ],
    ids=lambda how: how.get("method", "match"),
)
def test_a_run_that_compacts_is_exact_counts_its_tokens_and_is_evaluated_with_and_without(
    how: dict[str, Any], tmp_path: Path
) -> None:
    compaction = CompactionConfig(**how, protect=40)
    made = small_config(
        tmp_path,
        steps=2,
        env=CHOICES,
        rollout=RolloutConfig(compaction=compaction),
        eval=EvalConfig(tasks=3, every=2, cache="both"),
    )
    train(replace_train(made))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    first, *steps = lines
    assert {"eval/success", "eval/whole/success", "eval/cache/peak_max"} <= first.keys()
    assert first["eval/compaction/events"] > 0 == first["eval/whole/compaction/events"]
    assert first["eval/cache/peak_max"] < first["eval/whole/cache/peak_max"]
    for line in steps:
        assert line["mismatch/max"] < 1e-4 and line["compaction/events"] > 0
        eligible, dropped = line["samples/tokens_eligible"], {k: v for k, v in line.items() if "/dropped/" in k}
        assert eligible == line["samples/tokens_trained"] + sum(dropped.values())
    (talk, *_) = rollouts.load(RunFolder.open(tmp_path / "run").rollout(2))
    assert talk.turns[-1].events


def replace_train(made: Any) -> Any:
    """One update a step, so that sampler and trainer have the same weights."""
    return made.model_copy(update={"train": made.train.model_copy(update={"updates": 1})})


class Stopper(Silent):
    """Asks for an end after a step."""

    def __init__(self, after: int) -> None:
        self.after, self.stop = after, threading.Event()

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        if step == self.after:
            self.stop.set()


def test_a_run_that_compacts_goes_on_with_the_same_numbers_after_a_stop(tmp_path: Path) -> None:
    compacts = RolloutConfig(compaction=CompactionConfig(max_kv_tokens=110, protect=40))
    whole, cut = (small_config(tmp_path / name, steps=3, env=CHOICES, rollout=compacts) for name in ("whole", "cut"))
    train(whole)
    asked = Stopper(after=2)
    train(cut, asked, stop=asked.stop)
    train(cut, resume=True)
    assert numbers(tmp_path / "cut") == numbers(tmp_path / "whole")
