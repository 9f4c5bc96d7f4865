"""What the sampler computed with a compacted cache, token by token, the trainer computes in one forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from compacted import Talk, reply
from played import played
from turnwise.errors import ModelError
from turnwise.model import Policy
from turnwise.model.slots import turns
from turnwise.rows import Row, pack
from turnwise.testing import tiny_model
from turnwise.train.step import score_row
from turnwise.trees import merge
from turnwise.types import Trajectory

EXACT = 2e-5
HEARD = [list(range(40 + 7 * n, 52 + 8 * n)) for n in range(5)]
"""What the environment says, each time something else."""


def rows_of(*groups: Sequence[Trajectory]) -> list[Row]:
    trees = [tree for members in groups for tree in merge(members)]
    rows, cut = pack(trees, sum(map(len, trees)))
    assert not cut.total()
    return rows


@torch.no_grad()
def apart(policy: Policy, rows: Sequence[Row]) -> float:
    """The largest difference between trainer and sampler."""
    found = [np.abs(score_row(policy, row).logp_E.numpy() - row.entries.sampler_logp).max() for row in rows]
    return float(max(found))


def talk_of(policy: Policy, seed: int, events: int, **how: object) -> Trajectory:
    """Three turns; up to four events, later ones over the slots of earlier ones, within replies and between turns."""
    talk = Talk(policy, seed)
    strikes = [(5, 3, 12), (9, 2, 9), (0, 3, 15), (4, 1, 14)][:events]
    turns = [
        reply(talk, HEARD[seed % 3], 12, *strikes[:2], **how),
        reply(talk, HEARD[3], 9, *strikes[2:], **how),
        reply(talk, HEARD[4], 6, **how),
    ]
    return played(*turns)


@pytest.mark.parametrize("events", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "how", [{}, {"method": "evict"}, {"method": "delete"}, {"method": "delete", "carry_ratio": 0.3}]
)
def test_one_forward_gives_what_was_sampled_with_a_compacted_cache(how: dict[str, object], events: int) -> None:
    policy = tiny_model()
    assert apart(policy, rows_of([talk_of(policy, 1, events, **how)])) < EXACT


@pytest.mark.parametrize("events", [1, 2, 3, 4])
def test_text_read_again_after_an_event_is_a_sequence_of_its_own(events: int) -> None:
    policy = tiny_model()
    talk = talk_of(policy, 2, events, method="delete_reread", carry_head=1, carry_tail=2)
    (tree,) = merge([talk])  # one tree, since what is read again begins with the same protected tokens
    assert sum(s.event.method == "delete_reread" for s in tree.strikes) == events
    assert (tree.visible_until == tree.ends).all()
    assert len(tree.entries) == talk.sampled_tokens
    assert apart(policy, rows_of([talk])) < EXACT


def siblings(policy: Policy, count: int, **how: object) -> list[Trajectory]:
    """A turn in common, with an event; then each goes on with events of its own, at other tokens, of other regions."""
    root = Talk(policy, 5)
    shared = reply(root, HEARD[0], 10, (6, 3, 10), **how)
    found = []
    for n in range(count):
        talk = root.fork(100 + n)
        strikes = [(0, 2, 9 + n), (3 + n, 3, 12)][: n % 3]
        turns = [reply(talk, HEARD[1 + n % 2], 7, *strikes, **how), reply(talk, HEARD[4], 4, (2, 1, 8), **how)]
        found.append(played(shared, *turns, sibling=n))
    return found


@pytest.mark.parametrize("how", [{}, {"method": "delete"}, {"method": "delete_reread", "carry_tail": 2}])
def test_siblings_that_were_compacted_at_different_tokens_share_what_stood_before(how: dict[str, object]) -> None:
    policy = tiny_model()
    group = siblings(policy, 5, **how)
    assert apart(policy, rows_of(group)) < EXACT
    assert sum(map(len, merge(group))) < sum(len(tree) for one in group for tree in merge([one]))


def test_a_retry_before_an_event_sees_again_what_the_event_took() -> None:
    policy = tiny_model()
    first = Talk(policy, 1)
    start = reply(first, HEARD[0], 8)
    retry = first.fork(2)
    struck = [reply(first, HEARD[1], 8, (4, 2, 15)), reply(first, HEARD[2], 5, (0, 1, 9))]
    again = [reply(retry, HEARD[1], 8, (6, 3, 12)), reply(retry, HEARD[3], 5)]
    assert apart(policy, rows_of([played(start, *struck, *again)])) < EXACT


@pytest.mark.parametrize("shape", [{"kv_heads": 1}, {"kv_heads": 4}, {"layers": 1, "heads": 2, "kv_heads": 2}])
def test_packed_rows_of_every_shape_of_model_are_exact(shape: dict[str, int]) -> None:
    policy = tiny_model(**shape)
    talks = [talk_of(policy, n, n) for n in range(5)]
    (row,) = rows_of(*([talk] for talk in talks), siblings(policy, 3))
    assert apart(policy, [row]) < EXACT


def test_an_event_one_token_too_early_or_late_is_another_event() -> None:
    policy = tiny_model()
    talk = talk_of(policy, 1, 2)
    for by in (-1, 1):
        wrong = [replace(t, events=tuple(replace(e, at=e.at + by) for e in t.events)) for t in talk.turns]
        assert apart(policy, rows_of([replace(talk, turns=wrong)])) > 1e-3


def test_other_kept_keys_or_queries_than_the_recorded_ones_show() -> None:
    policy = tiny_model()
    talk = talk_of(policy, 1, 1)
    (event,) = talk.turns[-1].events
    for wrong in (
        replace(event, kept=(event.kept + 1) % (event.end - event.start)),
        replace(event, queries=event.queries - 1),
        replace(event, span=event.span + 3),
        replace(event, ridge=1.0),
    ):
        turns = [replace(t, events=(wrong,)) for t in talk.turns]
        assert apart(policy, rows_of([replace(talk, turns=turns)])) > 1e-4


def test_queries_of_the_suffix_are_replayed_as_they_are() -> None:
    policy = tiny_model()
    talk = Talk(policy, 4)
    talk.hear(HEARD[0])
    talk.say(8)
    talk.strike(2, 11, source="suffix")
    talk.say(6)
    assert apart(policy, rows_of([played(talk.done())])) < EXACT


def test_a_model_without_rotary_positions_replays_what_turns_no_queries_and_refuses_the_rest() -> None:
    policy = tiny_model()
    rows = {how: rows_of([talk_of(policy, 1, 2, method=how)]) for how in ("evict", "delete", "match")}
    del policy.model.base_model.rotary_emb.inv_freq
    for how in ("evict", "delete"):
        assert turns(rows[how][0].strikes) is False
    with pytest.raises(ModelError, match="positions are not rotary; expected a rotary model"):
        score_row(policy, rows["match"][0])
