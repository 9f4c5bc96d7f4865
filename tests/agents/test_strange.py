"""However strange a reply is, every family's parser makes a message of it that can be answered."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from strange import Marked, parsers, read, replies
from tooled import Tooled

from turnwise.agents import Limits, Rules, play
from turnwise.testing import FakeEngine, byte_tokenizer
from turnwise.text import ChatML
from turnwise.types import EpisodeStop, Sampling, Task, Trajectory

PARSERS = parsers()
FINE = {EpisodeStop.DONE, EpisodeStop.TURN_LIMIT, EpisodeStop.TOKEN_LIMIT, EpisodeStop.PARSE_ERROR}


@pytest.mark.parametrize("name", PARSERS)
def test_a_strange_reply_becomes_a_message_whose_faults_are_all_answered(name):
    renderer, marks = PARSERS[name]()
    found = Counter[str]()
    for text in replies(60, marks):
        found.update(read(renderer, text))
    assert found["replies"] == 60 and found["good"] + found["faulty"]


@pytest.mark.parametrize("rule", ["answer", "end"])
def test_an_episode_of_strange_replies_ends_for_a_reason_and_never_by_an_exception(rule):
    renderer = ChatML(byte_tokenizer())
    strange = list(replies(120, ["<|im_start|>", PARSERS["chatml"]()[1][0]]))
    stops = Counter[EpisodeStop]()
    for n in range(0, len(strange), 6):
        said = [text.encode("utf-8", "ignore").decode() for text in strange[n : n + 6]]
        engine = FakeEngine([[*renderer.tokenizer.encode(t, add_special_tokens=False), renderer.end] for t in said])
        sampling, limits = Sampling(max_tokens=500, stop_ids=(renderer.end,)), Limits(6, 20_000, 30.0)
        empty = Trajectory("tooled", Task("t"), 0, 0, n)
        played = asyncio.run(play(Tooled([]), empty, engine, renderer, sampling, limits, rules=Rules(bad_call=rule)))
        stops[played.stop_reason] += 1
        assert played.error is None or played.error.startswith("RenderError"), played.error
    assert stops.keys() <= FINE | {EpisodeStop.ENV_ERROR}
    assert (EpisodeStop.PARSE_ERROR in stops) == (rule == "end")


def test_a_mark_is_one_token_of_its_own():
    tokenizer = Marked()
    assert len(tokenizer.encode("<odd>")) == 1 and tokenizer.marks == {"<odd>"}
