"""What condensers are told to look for."""

from __future__ import annotations

import pytest

from turnwise.condense.query import query_of

LONG = "\n".join(["A passage of no interest whatsoever."] * 20 + ["Who is it?"])


@pytest.mark.parametrize(
    ("pattern", "data", "said", "expected"),
    [
        ("", {}, "short", "short"),
        ("", {}, LONG, "Who is it?"),
        ("", {"question": "what?"}, LONG, "what?"),
        ("", {"question": 3}, "short", "short"),
        ("Who.*", {"question": "what?"}, LONG, "Who is it?"),
        ("Who is (.*)\\?", {}, LONG, "it"),
        ("nothing", {}, LONG, ""),
        ("(x)?W", {}, LONG, ""),
    ],
)
def test_the_pattern_comes_before_the_task_s_question_and_that_before_the_first_message(pattern, data, said, expected):
    assert query_of(pattern, data, [{"role": "system", "content": "s"}, {"role": "user", "content": said}]) == expected


def test_without_a_user_message_there_is_no_query():
    assert query_of("", {}, [{"role": "system", "content": "s"}]) == ""
