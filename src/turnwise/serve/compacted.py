"""What the compaction routes answer: a response's tokens, and every compaction that struck meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel

from turnwise.serve.server import Server
from turnwise.types import Completion, Event


class CompactionEvent(BaseModel):
    """One compaction, in the order they struck."""

    segment: int
    kv_len_before: int
    kv_len_after: int
    window: int
    kept: int
    ratio: float
    algo_time: float
    kept_indices: list[list[list[int]]]
    """Layer, key/value head, slot: columns counted from the start of the window."""
    trigger: str
    at: int


class Diagnostics(BaseModel):
    """What a response cost; `mean_logprob` is over sampled tokens."""

    prompt_len: int
    total_tokens: int
    total_time: float
    mean_logprob: float
    compaction_events: list[CompactionEvent]
    segment_boundaries: list[int]
    """Tokens of the response before each compaction in it."""


class CompactAnswer(BaseModel):
    """A response: its tokens, of which those with mask 0 were told and not sampled."""

    all_token_ids: list[int]
    all_logprobs: list[float]
    completion_mask: list[int]
    policy_versions: list[int]
    final_text: str
    stop_reason: str
    diagnostics: Diagnostics
    warnings: list[str] = []


class SessionAnswer(CompactAnswer):
    """A response in a session; its cache holds `current_seq_len` columns for `logical_len` tokens."""

    session_id: str
    current_seq_len: int
    logical_len: int


def answer(server: Server, prompt: int, said: Completion, seconds: float, new: int = 0) -> dict[str, Any]:
    """The fields of CompactAnswer; the response begins behind `prompt` tokens, `new` events are this request's."""
    ids = said.ids.tolist()
    injected = np.zeros(len(ids), np.bool_) if said.injected is None else said.injected
    own = said.logprobs[~injected]
    events = said.events[len(said.events) - new :] if new else ()
    server.meters.compactions.inc(len(events))
    server.meters.sampled_tokens.inc(len(own))
    diagnostics = Diagnostics(
        prompt_len=prompt,
        total_tokens=len(ids),
        total_time=seconds,
        mean_logprob=float(own.mean()) if len(own) else 0.0,
        compaction_events=[_event(n, event) for n, event in enumerate(events)],
        segment_boundaries=[event.at - prompt for event in events if event.at >= prompt],
    )
    return {
        "all_token_ids": ids,
        "all_logprobs": said.logprobs.tolist(),
        "completion_mask": (~injected).astype(int).tolist(),
        "policy_versions": said.policy_versions.tolist(),
        "final_text": _text(server, said),
        "stop_reason": str(said.stop_reason),
        "diagnostics": diagnostics,
    }


def _text(server: Server, said: Completion) -> str:
    ids = said.ids.tolist()
    return server.text(ids[:-1] if isinstance(said.stopped_by, int) and ids[-1:] == [said.stopped_by] else ids)


def _event(segment: int, event: Event) -> CompactionEvent:
    window = event.end - event.start
    return CompactionEvent(
        segment=segment,
        kv_len_before=event.before,
        kv_len_after=event.after,
        window=window,
        kept=event.slots,
        ratio=event.slots / max(window, 1),
        algo_time=event.ms / 1000,
        kept_indices=event.kept.tolist(),
        trigger=event.trigger,
        at=event.at,
    )
