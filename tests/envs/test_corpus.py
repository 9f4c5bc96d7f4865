"""Conversations for a tokenizer, played on the train side."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path

from turnwise.envs import TaskSet, find
from turnwise.envs.babyai.env import ACTIONS
from turnwise.envs.corpus import corpus

BABYAI = TaskSet(find("babyai", {"max_steps": 4}), 0.2, 0)
TOY = TaskSet(find(f"{Path(__file__).with_name('toy_env.py')}:Toy", {}), 0.3, 0)


def test_a_corpus_holds_conversations_with_the_given_replies() -> None:
    chats = asyncio.run(corpus(BABYAI, 5, 0, ACTIONS))
    assert len(chats) == 5
    assert all([m["role"] for m in chat] == ["system", *["user", "assistant"] * 4, "user"] for chat in chats)
    assert {m["content"] for chat in chats for m in chat if m["role"] == "assistant"} <= set(ACTIONS)


def test_the_same_seed_gives_the_same_corpus_and_another_another() -> None:
    first, again, other = (asyncio.run(corpus(BABYAI, 3, seed, ACTIONS)) for seed in (1, 1, 2))
    assert first == again != other


def test_without_replies_the_empty_one_is_given() -> None:
    chats = asyncio.run(corpus(TOY, 4, 0))
    assert [[m["content"] for m in chat] for chat in chats] == [
        [f"Say {task.data['n']}.", ""] for task in islice(TOY.train(seed=0), 4)
    ]


def test_a_conversation_stops_after_max_turns() -> None:
    (chat,) = asyncio.run(corpus(BABYAI, 1, 0, ACTIONS, max_turns=2))
    assert [m["role"] for m in chat] == ["system", "user", "assistant", "user", "assistant", "user"]
