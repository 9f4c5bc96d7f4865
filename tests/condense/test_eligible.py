"""Which messages may be condensed."""

from __future__ import annotations

import pytest

from turnwise.condense.eligible import border, transcript

ROLES = {"s": "system", "u": "user", "A": "assistant", "t": "tool"}


def talk(letters: str) -> list[dict[str, str]]:
    return [{"role": ROLES[letter], "content": letter} for letter in letters]


@pytest.mark.parametrize(
    ("letters", "protect", "expected"),
    [("suAtAt", 1, 4), ("suAtAt", 2, 2), ("suAtAt", 9, 2), ("suAtAt", 0, 6), ("su", 3, 2), ("suA", 1, 2), ("", 1, 0)],
)
def test_the_last_turns_are_protected_and_the_first_input_never_is(letters, protect, expected):
    assert border(talk(letters), protect) == expected


def test_a_transcript_says_who_spoke_and_what_was_called():
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    played = [{"role": "assistant", "content": "hm", "tool_calls": [call]}, {"role": "tool", "content": "a wall"}]
    assert transcript(played) == 'assistant: hm\nassistant calls look({"at": 1})\ntool: a wall'
