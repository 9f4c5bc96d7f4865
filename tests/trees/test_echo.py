"""Which tokens echo: by role, tool and body, once in a group, and every other one with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoed import chosen, dropped, echo_of, reads
from played import played, turn
from turnwise.errors import DataError
from turnwise.types import Attribution, Event, Trajectory

ASK, GO, SEE = ("user", [5, 6]), ("assistant", [7]), ("tool:look", [8, 9])
RULES = ("system", [4])


def walk(**more: Any) -> Trajectory:
    """Reads S and a task, looks, reads what the tool says, calls another tool, reads that."""
    again = [RULES, ASK, GO, SEE, ("assistant", [10])]
    return played(
        reads(RULES, ASK, wrote=[7]),
        reads(*again[:4], wrote=[10]),
        reads(*again, ("tool:run", [11]), wrote=[12, 13]),
        **more,
    )


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"user": {}}, [5, 6]),
        ({"system": {}}, [4]),
        ({"tool": {}}, [8, 9, 11]),
        ({"tool": {}, "user": {"alpha": -2.0}}, [5, 6, 8, 9, 11]),
        ({"tool": {"tool_names": ["run"]}}, [11]),
        ({"tool": {"tool_names": ["run", "look"]}}, [8, 9, 11]),
        ({"assistant": {}}, [7, 10, 12, 13]),
        ({"user": {}, "tool": {}, "initial_prompt": False}, [8, 9, 11]),
    ],
)
def test_bodies_of_the_chosen_roles_and_tools_echo_once_over_all_turns(config: Any, tokens: list[int]) -> None:
    assert chosen([walk()], **config)[1] == [tokens]


def test_every_other_token_of_a_prompt_is_counted_with_its_reason() -> None:
    assert dropped(chosen([walk()], tool={})[0]) == {"scaffold": 2, "role_off": 3}
    names = chosen([walk()], tool={"tool_names": ["run"]}, system={}, initial_prompt=False)[0]
    assert dropped(names) == {"tool_name": 2, "initial_prompt": 1, "scaffold": 2, "role_off": 2}


def test_echo_points_from_the_token_before_to_the_token_with_its_alpha_role_and_tool() -> None:
    ids, e = echo_of([walk()], tool={"alpha": 0.5}, user={"alpha": -1.0})
    assert (ids[e.at].tolist(), ids[e.source].tolist()) == ([5, 6, 8, 9, 11], [1, 5, 1, 8, 1])
    assert (e.at - e.source).tolist() == [1] * 5
    assert (e.role.tolist(), e.tool.tolist()) == (["user"] * 2 + ["tool"] * 3, ["", "", "look", "look", "run"])
    assert e.alpha.tolist() == e.weight.tolist() == [-1, -1, 0.5, 0.5, 0.5]
    assert (e.trajectory.tolist(), e.turn.tolist()) == ([0] * 5, [0, 0, 1, 1, 2])


def test_what_siblings_read_alike_echoes_in_the_first_and_is_counted_as_shared_in_the_others() -> None:
    two = [
        played(reads(ASK, wrote=[7]), reads(ASK, ("assistant", [7]), ("user", [8]), wrote=[3])),
        played(reads(ASK, wrote=[7]), reads(ASK, ("assistant", [7]), ("user", [9]), wrote=[3]), sibling=1),
    ]
    choice, tokens = chosen(two, user={})
    assert tokens == [[5, 6, 8], [9]]
    assert dropped(choice)["shared"] == 2
    assert choice.lengths == {0: (9, 3, 2), 1: (9, 1, 2)}


def test_groups_share_nothing_with_each_other() -> None:
    assert chosen([played(reads(ASK, wrote=[7]), group=g) for g in (0, 1)], user={})[1] == [[5, 6], [5, 6]]


def test_a_fork_inside_a_reply_does_not_echo_again_what_was_read_before_it() -> None:
    first = reads(ASK, ("assistant", [7, 8]), SEE, wrote=[10])
    drifted = reads(ASK, ("assistant", [7, 3]), SEE, ("assistant", [10]), ("tool:look", [11]), wrote=[12])
    choice, tokens = chosen([played(reads(ASK, wrote=[7, 8]), first, drifted)], user={}, tool={})
    assert tokens == [[5, 6, 8, 9, 11]]
    assert dropped(choice)["shared"] == 2


def test_a_prompt_is_not_echoed_again_after_its_prefix_broke_at_the_root() -> None:
    rewritten = reads(("system", [3]), ASK, GO, SEE, wrote=[10])
    longer = reads(("system", [3]), ASK, GO, SEE, ("assistant", [10]), ("tool:look", [8, 9]), wrote=[12])
    episode = played(reads(RULES, ASK, wrote=[7]), reads(RULES, ASK, GO, SEE, wrote=[9]), rewritten, longer)
    choice, tokens = chosen([episode], user={}, tool={}, system={"alpha": 2.0})
    assert tokens == [[4, 5, 6, 8, 9, 3, 8, 9, 8, 9]]
    assert dropped(choice)["shared"] == 2


def test_without_the_initial_prompt_its_messages_stay_out_wherever_they_are_read_again() -> None:
    again = reads(("system", [3]), ASK, GO, SEE, wrote=[10])
    more = reads(("system", [3]), ASK, GO, SEE, ("assistant", [10]), SEE, wrote=[10])
    choice, tokens = chosen([played(reads(RULES, ASK, wrote=[7]), again, more)], user={}, tool={}, initial_prompt=False)
    assert tokens == [[8, 9, 8, 9]]
    assert dropped(choice)["initial_prompt"] == 4


def test_the_same_words_said_twice_echo_twice() -> None:
    wall = ("user", [8])
    again = reads(ASK, GO, wall, GO, wall, wrote=[7])
    episode = played(reads(ASK, wrote=[7]), reads(ASK, GO, wall, wrote=[7]), again)
    assert chosen([episode], user={})[1] == [[5, 6, 8, 8]]
    assert chosen([played(reads(wall, wall, GO, wall, wrote=[7]))], user={})[1] == [[8, 8, 8]]


def test_the_first_token_of_a_tree_has_nothing_before_it() -> None:
    a = Attribution(np.array([0, 0], np.int32), np.ones(2, np.int8), ("user",), (None,))
    choice, tokens = chosen([played(turn([5, 6], [7], attribution=a))], user={})
    assert (tokens, dropped(choice)) == ([[6]], {"first_token": 1})


def test_text_that_the_renderer_cannot_tell_from_template_does_not_echo() -> None:
    choice, tokens = chosen([played(reads(ASK, wrote=[7], body=-1))], user={})
    assert (tokens, dropped(choice)) == ([[]], {"scaffold": 1, "unknown_body": 2})


def test_failed_episodes_echo_only_when_they_are_kept() -> None:
    two = [walk(error="gone"), walk(sibling=1)]
    choice, tokens = chosen(two, tool={})
    assert (tokens, dropped(choice)["failed"], choice.lengths.keys()) == ([[], [8, 9, 11]], 3, {1})
    choice, tokens = chosen(two, tool={}, on_error="keep")
    assert (tokens, dropped(choice)["shared"], choice.lengths.keys()) == ([[8, 9, 11], []], 3, {0, 1})


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        ({"message": np.zeros(3, np.int32)}, "turn 1: found an attribution of 3 messages and 9 bodies"),
        ({"body": np.zeros(10, np.int8)}, "9 messages and 10 bodies for 9 prompt tokens"),
        ({"tools": (None,)}, "4 roles and 1 tool names"),
    ],
)
def test_an_attribution_that_does_not_fit_is_an_error_with_both_lengths(bad: Any, found: str) -> None:
    second = reads(("user", [5]), GO, ASK, ("user", []), wrote=[10])
    assert second.attribution is not None
    second.attribution = replace(second.attribution, **bad)
    with pytest.raises(DataError, match=found):
        chosen([played(reads(("user", [5]), wrote=[7]), second)], user={})


def test_a_missing_attribution_is_an_error_not_silence() -> None:
    with pytest.raises(DataError, match="turn 0 of toy/0: found no attribution of its 2 prompt tokens"):
        chosen([played(turn([1, 2], [3]))], user={})


word = st.lists(st.integers(5, 6), min_size=1, max_size=2)
talks = st.lists(st.lists(st.tuples(word, word), min_size=1, max_size=4), min_size=1, max_size=4)


def episodes(spec: Any) -> list[Trajectory]:
    """Append-only conversations of user and assistant in one group."""
    found = []
    for sibling, talk in enumerate(spec):
        said, turns = [], []
        for asked, wrote in talk:
            said.append(("user", asked))
            turns.append(reads(*said, wrote=wrote))
            said.append(("assistant", wrote))
        found.append(played(*turns, sibling=sibling))
    return found


@given(talks)
def test_every_place_in_a_group_that_users_wrote_echoes_exactly_once(spec: Any) -> None:
    group = episodes(spec)
    prefixes = set()
    for who in group:
        for t in who.turns:
            a, ids = t.attribution, tuple(t.prompt_ids.tolist())
            assert a is not None
            mine = [i for i in range(len(ids)) if a.body[i] == 1 and a.roles[a.message[i]] == "user"]
            prefixes |= {ids[: i + 1] for i in mine}
    choice, _ = chosen(group, user={})
    picked = [
        tuple(group[who].turns[n].prompt_ids.tolist()[: i + 1])
        for (who, n), p in choice.picked.items()
        for i in p.index
    ]
    assert sorted(picked) == sorted(prefixes)


def test_a_notice_among_what_was_sampled_is_a_user_s_but_not_told_from_its_template() -> None:
    told = walk()
    told.turns[2].injected = np.array([True, False])
    assert chosen([told], assistant={})[1] == [[7, 10, 13]]
    assert chosen([told], user={})[1] == [[5, 6]]
    assert dropped(chosen([told], user={})[0])["unknown_body"] == 1
    assert (
        dropped(chosen([told], assistant={})[0])["role_off"]
        == dropped(chosen([walk()], assistant={})[0])["role_off"] + 1
    )


def test_text_that_is_read_again_after_an_event_echoes_where_it_was_read_first() -> None:
    again = walk()
    size = len(again.turns[1].prompt_ids)
    none = np.zeros((1, 1, 0), np.int16)
    event = Event(size, 0, 2, "delete_reread", none, np.array([0, 1, size - 1], np.int32))
    again.turns[2].events = (event,)
    for config, tokens in (({"tool": {}, "user": {}}, [5, 6, 8, 9, 11]), ({"assistant": {}}, [7, 10, 12, 13])):
        assert chosen([again], **config)[1] == [tokens]
        ids, e = echo_of([again], **config)
        assert sorted(ids[e.at].tolist()) == sorted(tokens)
        assert ids[e.source].tolist() == [before(again, int(token)) for token in ids[e.at]]


def before(trajectory: Trajectory, token: int) -> int:
    """What stands before a token in the longest history."""
    ids = trajectory.turns[-1].ids.tolist()
    return ids[ids.index(token) - 1]
