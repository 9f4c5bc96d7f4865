"""Blocks: how they stand in a message, how they are told from text that looks like one, and how they open."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.condense.blocks import Blocks

SHORT = st.text() | st.sampled_from(["</block_1>", "<block_2>x</block_2>", ""])


def two() -> Blocks:
    blocks = Blocks()
    blocks.add("the first original", "one")
    blocks.add("the second", "two")
    return blocks


def test_a_block_stands_between_its_numbered_tags():
    assert two().shown == ["<block_1>one</block_1>", "<block_2>two</block_2>"]


@settings(deadline=None)
@given(st.lists(st.tuples(SHORT, st.text("ab <>"))))
def test_every_block_is_found_again_whatever_it_says_and_the_text_stays_whole(said):
    blocks = Blocks()
    text = "".join(between + blocks.add("original", short) for short, between in said)
    found = blocks.split(text)
    assert "".join(part for part, _ in found) == text
    assert [part for part, ours in found if ours] == blocks.shown


def test_text_that_only_looks_like_a_block_is_text():
    fake = "<block_1>else</block_1><block_7>x</block_7>"
    assert two().split(f"{fake} <block_2>two</block_2>") == [(f"{fake} ", False), ("<block_2>two</block_2>", True)]


@pytest.mark.parametrize("asked", [2, "2", "block_2"])
def test_a_block_opens_once(asked):
    blocks = two()
    assert blocks.extract({"blocks": [asked]}) == "block 2:\nthe second"
    assert blocks.extract({"blocks": [2]}) == "block 2 was opened before; a block opens once"


def test_several_blocks_open_in_one_call_in_the_order_they_were_asked_for():
    assert two().extract({"blocks": [2, 1, 2]}) == "block 2:\nthe second\n\nblock 1:\nthe first original"


@pytest.mark.parametrize("asked", [0, 3, -1, "x", None, 1.5, True, {"a": 1}, [1], "9" * 30])
def test_what_is_no_block_is_answered_and_opens_none(asked):
    blocks = two()
    assert "there are 1 to 2" in blocks.extract({"blocks": [asked]}) and not blocks.opened


def test_asking_for_nothing_and_before_anything_was_condensed_is_answered():
    assert two().extract({"blocks": []}) == "no block was named"
    assert Blocks().extract({"blocks": [1]}) == "no block 1; nothing was condensed yet"
