"""What is left of a text: the sentences that say most about the query, within a budget of tokens."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.condense.keywords import Keywords, extract, weigh, words
from turnwise.condense.plan import starts_of
from turnwise.condense.written import Request
from turnwise.testing import byte_tokenizer

BYTES = starts_of(byte_tokenizer())
TEXT = (
    "Arlen is a town on the river Moss. The bread there is good. "
    "Its mayor is Dora Quill, who was born in Hexham. Travellers praise the old bridge and its seven arches."
)


def shorten(text: str, budget: int, query: str = "") -> str | None:
    return asyncio.run(Keywords(BYTES).shorten(Request(text, budget, query, 0))).text


def test_the_sentence_that_answers_the_query_is_kept_before_all_others():
    assert "Dora Quill, who was born in Hexham." in (shorten(TEXT, 60, "Where was the mayor born?") or "")
    assert "bridge and its seven arches." in (shorten(TEXT, 60, "Which bridge do travellers praise?") or "")


def test_without_a_query_the_opening_is_kept():
    assert (shorten(TEXT, 40) or "").startswith("Arlen is a town on the river Moss.")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.integers(1, 80), st.text(max_size=20))
def test_what_is_kept_fits_the_budget(text, budget, query):
    kept = extract(text, budget, weigh(["the", "mayor"], query), BYTES)
    assert len(BYTES(kept)) <= budget


def test_where_no_sentence_fits_keywords_stand_alone():
    assert shorten(TEXT, 14, "mayor") == "mayor, Moss"


def test_sentences_keep_their_order():
    weights = {"second": 9.0, "first": 1.0}
    assert extract("The first. None here. The second.", 99, weights, BYTES) == "The first. The second."


def test_chinese_queries_count_by_pairs_of_characters():
    assert words("首都是哪") == ["首都", "都是", "是哪"]
    kept = extract("上海很大。北京是首都。天气好。", 25, weigh([], "首都"), BYTES)
    assert kept.startswith("北京是首都。")


@pytest.mark.parametrize("text", ["", "   ", "a", "!!!", "12 34"])
def test_a_text_without_keywords_is_no_error(text):
    assert shorten(text, 5) in (None, text.strip())
