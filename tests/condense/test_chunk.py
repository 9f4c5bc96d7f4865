"""Pieces of a text: put together they are the text, and none is larger than it has to be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.condense.chunk import chunks, cut_before, recursive, windows
from turnwise.condense.eligible import turns
from turnwise.condense.plan import starts_of
from turnwise.config.condense import SEPARATORS, ChunkConfig
from turnwise.testing import byte_tokenizer

BYTES = starts_of(byte_tokenizer())
PIECES = ["\n\n", "\n", "。", "！", "? ", ", ", "、", " ", "word", "Passage 1: ", "字", "é", "🙂", "<block_1>"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.sampled_from(PIECES)).map("".join)
CONFIGS = st.builds(
    ChunkConfig,
    type=st.sampled_from(["recursive", "tokens", "turns"]),
    tokens=st.integers(1, 40),
    separators=st.lists(st.sampled_from(SEPARATORS), unique=True),
    boundary=st.sampled_from(["", "Passage", "(?m)^", "(?=word)", "x*"]),
)
MESSAGES = st.lists(st.sampled_from(["user", "assistant", "tool"]).map(lambda role: {"role": role, "content": "x"}))


@settings(deadline=None)
@given(TEXTS, CONFIGS)
def test_the_pieces_of_every_chunker_are_the_text_again_and_none_is_empty(text, config):
    pieces = chunks(text, config, BYTES)
    assert "".join(pieces) == text and all(pieces)


@settings(deadline=None)
@given(MESSAGES)
def test_turns_put_together_are_the_messages_from_the_first_reply_on(messages):
    first = next((n for n, m in enumerate(messages) if m["role"] == "assistant"), len(messages))
    assert [m for turn in turns(messages) for m in turn] == messages[first:]


@settings(deadline=None)
@given(TEXTS, st.integers(1, 40))
def test_a_recursive_piece_is_small_enough_or_a_single_character(text, size):
    assert all(len(BYTES(piece)) <= size or len(piece) == 1 for piece in recursive(text, size, SEPARATORS, BYTES))


def test_text_is_cut_at_the_best_separator_that_helps_and_neighbours_are_joined():
    text = "one two\nthree four\n\nfive"
    assert recursive(text, 20, SEPARATORS, BYTES) == ["one two\nthree four\n\n", "five"]
    assert recursive(text, 12, SEPARATORS, BYTES) == ["one two\n", "three four\n\n", "five"]
    assert recursive(text, 7, SEPARATORS, BYTES) == ["one ", "two\n", "three ", "four\n\n", "five"]


def test_chinese_is_cut_behind_its_own_full_stops_and_commas():
    text = "北京是首都。上海很大，人多。"
    assert recursive(text, 18, SEPARATORS, BYTES) == ["北京是首都。", "上海很大，", "人多。"]


@pytest.mark.parametrize(
    ("boundary", "expected"), [("Q", ["a ", "Q1 b ", "Q2"]), ("", ["a Q1 b Q2"]), ("a", ["a Q1 b Q2"])]
)
def test_a_hard_boundary_begins_a_piece(boundary, expected):
    assert cut_before("a Q1 b Q2", boundary) == expected


def test_small_neighbours_are_not_joined_over_a_hard_boundary():
    config = ChunkConfig(tokens=100, boundary="(?m)^Passage")
    assert chunks("ask\nPassage 1\nPassage 2", config, BYTES) == ["ask\n", "Passage 1\n", "Passage 2"]


def test_windows_hold_so_many_tokens_each_and_never_half_a_character():
    assert windows("abcdefg", 3, BYTES) == ["abc", "def", "g"]
    assert windows("é字", 2, BYTES) == ["é", "字"]
