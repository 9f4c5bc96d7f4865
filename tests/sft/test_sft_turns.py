"""Conversations as the turns of an episode: what is learnt, and in which context."""

from __future__ import annotations

import pytest
from chats import CALL, PLAIN, TOOL, TOOLED, said, user

from turnwise.errors import DataError
from turnwise.model.tiny import train_tokenizer
from turnwise.sft.turns import trajectory
from turnwise.text.families import FAMILIES, MARKS
from turnwise.types import Task


def make(family, record, longest=10_000):
    tokenizer = train_tokenizer([], 259, MARKS)
    renderer = FAMILIES[family].make(tokenizer)
    found = trajectory(Task("t", {"tools": None, **record}), renderer, longest)
    texts = [
        (tokenizer.decode(t.prompt_ids.tolist()), tokenizer.decode(t.completion_ids.tolist())) for t in found.turns
    ]
    return found, texts


def test_each_reply_is_a_turn_behind_everything_before_it():
    found, texts = make("chatml", PLAIN)
    head = "<|im_start|>system\nYou walk.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    more = "left<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    assert texts == [(head, "left<|im_end|>"), (head + more, "right<|im_end|>")]
    assert [t.prefix and t.prefix.kind.value for t in found.turns] == [None, "clean"]
    assert found.sampled_tokens == len("left") + len("right") + 2


def test_calls_are_learnt_and_answers_are_read():
    found, texts = make("chatml", TOOLED)
    assert texts[0][1] == '<tool_call>\n{"name": "look", "arguments": {"at": "door"}}\n</tool_call><|im_end|>'
    assert texts[1][0].endswith("<|im_start|>tool\nx<|im_end|>\n<|im_start|>assistant\n")
    assert found.turns[1].attribution.tools == (None, None, "look")


def test_a_reply_of_weight_0_is_read_and_not_learnt():
    _, texts = make("chatml", {"messages": [user("a"), said("left", weight=0), user("b"), said("right")]})
    assert [reply for _, reply in texts] == ["right<|im_end|>"]
    assert "left<|im_end|>" in texts[0][0]


def test_reasoning_is_learnt_where_it_is_written_and_gone_where_the_template_forgets_it():
    record = {"messages": [user("a"), said("left", reasoning_content="why"), user("b"), said("right")]}
    found, texts = make("qwen3", record)
    assert texts[0][1] == "<think>\nwhy\n</think>\n\nleft<|im_end|>"
    assert "why" not in texts[1][0]
    assert found.turns[1].prefix.kind == "thinking_stripped"


def test_replies_beyond_the_models_context_are_counted_and_left_out():
    whole, _ = make("chatml", PLAIN)
    found, texts = make("chatml", PLAIN, longest=len(whole.turns[1].ids) - 1)
    assert [reply for _, reply in texts] == ["left<|im_end|>"]
    assert found.metrics == {"over_context": float(len("right") + 1)}


def test_a_conversation_that_the_family_cannot_write_is_named():
    two = said("", tool_calls=[CALL, {**CALL, "id": "c2"}])
    with pytest.raises(DataError, match=r"conversation t: .*single tool call"):
        make("llama-3", {"messages": [user("a"), two], "tools": [TOOL]})
