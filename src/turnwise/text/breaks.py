"""How a turn's prompt continues what stood before it, decided by evidence: what cannot be shown is `rewritten`.

A prompt that begins with everything so far costs one comparison of arrays; only a break is decoded, and only around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from renderers.base import Renderer, Tokenizer

from turnwise.text import evidence
from turnwise.text.content import Said
from turnwise.text.pieces import decode, tokenizer_of
from turnwise.types import Attribution, Break, BreakKind, Ids, Turn, shared

LEAD, TAIL = 12, 24
"""Tokens shown before and after the first that differs."""
REACH = 32
"""Tokens that are decoded before the message in which the first difference lies."""


def explain(
    turn: Turn, earlier: Sequence[Turn], messages: Sequence[Said], renderer: Renderer, *, condensed: bool = False
) -> Break | None:
    """The break between a turn and those before it in its trajectory, None for the first.

    `messages` are the conversation so far; `condensed` is the agent's word that it has rewritten its history.
    """
    if not earlier:
        return None
    number = _continued(turn, earlier)
    before = earlier[number]
    old, new = before.ids, turn.prompt_ids
    at = shared(old, new)
    whole = at == len(old) or at == len(new) == len(before.prompt_ids)
    if whole and before.agent == turn.agent:
        struck = at == len(old) and turn.events != before.events
        return Break(BreakKind.COMPACTED if struck else BreakKind.CLEAN, number, at)
    tokenizer = tokenizer_of(renderer)
    if before.agent != turn.agent:
        kind = BreakKind.OTHER_AGENT
    else:
        stops = renderer.get_stop_token_ids()
        kind = BreakKind.CONDENSED if condensed else _kind(before, turn, at, messages, tokenizer, stops)
    pieces = kind is BreakKind.RETOKENISED
    return Break(kind, number, at, _around(tokenizer, old, at, pieces), _around(tokenizer, new, at, pieces))


def _continued(turn: Turn, earlier: Sequence[Turn]) -> int:
    """The turn whose tokens this one goes on from: its agent's last, unless another shows that it was meant.

    That is one with the very same prompt (the agent asks again), or one whose whole prompt is repeated and that shares
    more than the agent's last. An agent that has said nothing yet is compared with what it shares most with.
    """
    own = [n for n, t in enumerate(earlier) if t.agent == turn.agent]
    if own and _begins(turn.prompt_ids, earlier[own[-1]].ids):
        return own[-1]
    again = [n for n in own if np.array_equal(earlier[n].prompt_ids, turn.prompt_ids)]
    if again:
        return again[-1]
    same = [shared(t.ids, turn.prompt_ids) for t in earlier]
    if not own:
        return max(range(len(same)), key=lambda n: (same[n], n))
    meant = [n for n, t in enumerate(earlier) if same[n] >= len(t.prompt_ids) and same[n] > same[own[-1]]]
    return max(meant, key=lambda n: (same[n], n), default=own[-1])


def _begins(ids: Ids, start: Ids) -> bool:
    return len(ids) >= len(start) and np.array_equal(ids[: len(start)], start)


def _kind(
    before: Turn, turn: Turn, at: int, messages: Sequence[Said], tokenizer: Tokenizer, stops: Sequence[int]
) -> BreakKind:
    """Which single cause explains everything that differs."""
    begin = _stretch(before, at)
    old, new = (decode(tokenizer, ids[begin:].tolist()) for ids in (before.ids, turn.prompt_ids))
    if new.startswith(old):
        return BreakKind.RETOKENISED
    marks = tuple(decode(tokenizer, [stop]) for stop in stops)
    left_out = evidence.stripped(old, new, marks)
    if left_out and left_out.strip():
        return BreakKind.THINKING_STRIPPED
    calls = evidence.said_by(messages)
    written = [evidence.same_calls(text, calls) for text in (old, new)]
    if written[1].startswith(written[0]):
        return BreakKind.TOOL_CALL_RENDERED
    if _bodies_agree(before, turn, at, messages, tokenizer, stops):
        return BreakKind.BOUNDARY
    both = evidence.stripped(written[0], written[1], marks)
    return BreakKind.REWRITTEN if left_out is None and both is None else BreakKind.THINKING_STRIPPED


def _stretch(before: Turn, at: int) -> int:
    """Where to begin to read: a little before the message that holds token `at`."""
    owner = _owners(before)
    if owner is None:
        return 0
    borders = np.flatnonzero(owner[:at] != owner[at])
    return max(int(borders[-1]) + 1 - REACH, 0) if len(borders) else 0


def _owners(turn: Turn) -> Ids | None:
    """The message of each token of prompt and completion."""
    a = turn.attribution
    if a is None:
        return None
    return np.concatenate([a.message, np.full(len(turn.completion_ids), len(a.roles), np.int32)])


def _bodies_agree(
    before: Turn, turn: Turn, at: int, messages: Sequence[Said], tokenizer: Tokenizer, stops: Sequence[int]
) -> bool:
    """Whether every message of `before`, its reply included, has the same text in the new prompt."""
    a, b, owners = before.attribution, turn.attribution, _owners(before)
    if a is None or b is None or owners is None or b.roles[: len(a.roles) + 1] != (*a.roles, "assistant"):
        return False
    bodies = np.concatenate([a.body, np.ones(len(before.completion_ids), np.int8)])
    old = _Bodies(before.ids, Attribution(owners, bodies, a.roles, a.tools), messages, tokenizer, stops)
    new = _Bodies(turn.prompt_ids, b, messages, tokenizer, stops)
    first = max(int(owners[: at + 1].max()), 0)  # those before it are equal, token by token
    texts = ((old.text(n), new.text(n)) for n in range(first, len(a.roles) + 1))
    return all(x is not None and x == y for x, y in texts)


@dataclass(frozen=True, slots=True)
class _Bodies:
    """The texts of messages as they stand in some tokens."""

    ids: Ids
    known: Attribution
    messages: Sequence[Said]
    tokenizer: Tokenizer
    stops: Sequence[int]

    def text(self, message: int) -> str | None:
        """A message's text without the mark that ends it, None if it cannot be told.

        Where body and scaffold are not told apart, plain content that stands there whole is the body.
        """
        own = self.ids[(self.known.message == message) & (self.known.body == 1)].tolist()
        unknown = self.known.body < 0
        if own or not unknown.any():
            while own and own[-1] in self.stops:
                own.pop()
            return decode(self.tokenizer, own)
        said = self.messages[message] if message < len(self.messages) else {}
        content = said.get("content")
        if not isinstance(content, str) or said.get("tool_calls") or said.get("reasoning_content") is not None:
            return None
        return content if content in decode(self.tokenizer, self.ids[unknown].tolist()) else None


def _around(tokenizer: Tokenizer, ids: Ids, at: int, pieces: bool) -> str:
    """The text around token `at`, with a bar between tokens if asked."""
    near = ids[max(at - LEAD, 0) : at + TAIL].tolist()
    return "|".join(decode(tokenizer, [token]) for token in near) if pieces else decode(tokenizer, near)
