"""A history rewritten: what gives way to blocks, what stays, and that twice is once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from halve import BYTES, Halve, history, reasons, rewrite, said, tool, user
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.condense import Shared
from turnwise.condense.drop import Drop
from turnwise.condense.keywords import Keywords

LINE = "the quick brown fox jumps over it and away "
SYSTEM = {"role": "system", "content": LINE}
LINES = st.lists(st.sampled_from([LINE, "short", "<block_1>x</block_1>", "fox " * 20, "。" * 30, " " * 40]), max_size=4)
TALK = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "tool", "system"]), LINES).map(
        lambda pair: {"role": pair[0], "content": "\n".join(pair[1])}
    ),
    min_size=1,
    max_size=6,
)


def test_each_piece_gives_way_to_a_numbered_block_and_the_original_opens():
    held = history()
    assert rewrite(held, [SYSTEM, user(f"a{LINE}\nb{LINE}")]) == [
        SYSTEM,
        user(f"<block_1>a{LINE[:20]}</block_1> \n<block_2>b{LINE[:20]}</block_2> "),
    ]
    assert held.answers["extract_condensed"]({"blocks": [2]}) == f"block 2:\nb{LINE}"
    assert reasons(held) == Counter(condensations=1, chunks=2, tokens_before=89, tokens_after=80, opened=1)


@pytest.mark.parametrize("condenser", [Halve(), Drop(BYTES), Keywords(BYTES)])
@pytest.mark.parametrize("kind", ["recursive", "tokens", "turns"])
@settings(deadline=None)
@given(talk=TALK, protect=st.integers(0, 2))
def test_rewriting_twice_is_rewriting_once_with_every_condenser_and_chunker(condenser, kind, talk, protect):
    held = history(condenser, protect_turns=protect, chunk={"type": kind, "tokens": 30})
    once = rewrite(held, talk)
    assert rewrite(held, once or talk) is None


@settings(deadline=None)
@given(TALK, st.integers(0, 2))
def test_what_is_rewritten_is_shorter_by_what_was_counted(talk, protect):
    held = history(protect_turns=protect)
    once = rewrite(held, talk)
    lengths = [sum(len(BYTES(m["content"])) for m in messages) for messages in (talk, once or talk)]
    blanks = sum(len(text) - len(text.rstrip()) for text in held.blocks.originals)
    assert lengths[0] - lengths[1] + blanks == held.counts["tokens_before"] - held.counts["tokens_after"]
    assert (once is None) == (not held.blocks.shown)


def test_other_roles_protected_turns_and_patterns_stay():
    talk = [SYSTEM, user(f"Q {LINE}\n{LINE}"), said(LINE), tool(LINE), said(LINE), tool(LINE)]
    found = rewrite(history(protect_turns=1, skip=["^Q"]), talk)
    assert found is not None
    assert [a == b for a, b in zip(talk, found, strict=True)] == [True, False, True, False, True, True]
    assert found[1]["content"].startswith(f"Q {LINE}\n<block_1>")


def test_roles_can_be_chosen():
    found = rewrite(history(roles=["assistant"]), [user(LINE), said(LINE)])
    assert found is not None and found[0] == user(LINE) and found[1]["content"].startswith("<block_1>")


def test_what_does_not_get_shorter_stays_and_is_not_tried_again():
    condenser = Halve(times=1)
    held = history(condenser)
    assert rewrite(held, [user(LINE)]) is None and rewrite(held, [user(LINE)]) is None
    assert len(condenser.asked) == 1 and reasons(held) == Counter(chunks=1, not_shorter=1)


def test_what_fails_stays_and_is_counted():
    held = history(Halve(why="failed"))
    assert rewrite(held, [user(LINE)]) is None and reasons(held) == Counter(chunks=1, failed=1)


def test_short_pieces_and_blanks_are_not_asked_about():
    condenser = Halve()
    assert rewrite(history(condenser, min_tokens=20), [user("short\n" + " " * 90)]) is None
    assert condenser.asked == []


def test_a_condenser_is_told_its_budget_the_query_and_a_seed():
    condenser = Halve()
    rewrite(history(condenser, ratio=0.25), [user(LINE)], "what?")
    (asked,) = condenser.asked
    assert (asked.text, asked.budget, asked.query, asked.seed) == (LINE.strip(), 11, "what?", 43)
    rewrite(history(condenser, ratio=0.01, min_tokens=9), [user(LINE)])
    assert condenser.asked[1].budget == 9


def test_content_in_parts_is_read_and_what_stays_keeps_its_form():
    parts = [{"type": "text", "text": LINE}, {"type": "text", "text": LINE}]
    found = rewrite(history(protect_turns=1), [user(parts), said("a"), user(parts)])
    assert found is not None and found[0]["content"].startswith("<block_1>") and found[2] == user(parts)


def test_whole_turns_become_one_user_message_that_joins_the_one_before():
    held = history(protect_turns=1, min_tokens=60, chunk={"type": "turns"})
    talk = [SYSTEM, user("go"), said(LINE), tool(LINE), said(LINE), tool(LINE), said("now"), tool("here")]
    found = rewrite(held, talk)
    assert found is not None
    assert [m["role"] for m in found] == ["system", "user", "assistant", "tool"]
    assert found[1]["content"].splitlines()[0] == "go" and found[1]["content"].count("<block_") == 2
    assert held.blocks.originals[0] == f"assistant: {LINE}\ntool: {LINE}"


def test_all_turns_can_be_one_piece():
    held = history(chunk={"type": "turns", "turns": 0})
    found = rewrite(held, [said(LINE), tool(LINE), said(LINE), tool(LINE)])
    assert found is not None and len(found) == 1 and found[0]["role"] == "user" and len(held.blocks.originals) == 1


def test_equal_pieces_are_condensed_once_for_a_group_and_every_episode_has_its_own_blocks():
    condenser, shared = Halve(), Shared()
    first, second = history(condenser, shared), history(condenser, shared)

    async def both():
        return await asyncio.gather(first.rewrite([user(LINE)], "q"), second.rewrite([user(f"x\n{LINE}")], "q"))

    found = asyncio.run(both())
    assert len(condenser.asked) == 1 and first.counts["shared"] + second.counts["shared"] == 1
    assert all("<block_1>" in rewritten.messages[0]["content"] for rewritten in found)


def test_another_query_is_another_question():
    condenser, shared = Halve(), Shared()
    rewrite(history(condenser, shared), [user(LINE)], "q")
    rewrite(history(condenser, shared), [user(LINE)], "other")
    assert len(condenser.asked) == 2


@pytest.mark.parametrize(
    ("config", "tokens", "turns", "due"),
    [
        ({"max_context_tokens": 10}, 10, 3, False),
        ({"max_context_tokens": 10}, 11, 3, True),
        ({"max_context_tokens": 10}, 11, 0, True),
        ({"max_context_tokens": 0, "max_input_tokens": 10}, 11, 0, True),
        ({"max_context_tokens": 0, "max_input_tokens": 10}, 10, 0, False),
        ({"max_context_tokens": 0, "max_input_tokens": 10}, 99, 1, False),
        ({"max_context_tokens": 0, "every_turns": 2}, 1, 0, False),
        ({"max_context_tokens": 0, "every_turns": 2}, 1, 3, False),
        ({"max_context_tokens": 0, "every_turns": 2}, 1, 4, True),
    ],
)
def test_a_history_is_due_by_its_prompt_its_input_or_its_turns(config, tokens, turns, due):
    assert history(**config).due(tokens, turns) is due


def test_a_prompt_that_is_too_long_even_so_is_counted():
    held = history(max_context_tokens=10)
    held.settle(10)
    held.settle(11)
    assert reasons(held) == Counter(over=1)


def test_without_extract_no_tool_is_offered():
    assert history(extract=False).tools == [] and history(extract=False).answers == {}
