"""Turns to a nested Arrow column and back: a list a trajectory of one struct a turn.

Every prompt repeats the history, so a turn stores what is new in it. `prompt_shared` counts the leading prompt tokens
that equal the prompt + completion of the same agent's turn before; `prompt_ids` holds the rest. Attribution counts
from the attribution before: `shared` tokens, and `names_shared` of its roles and tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnwise.runs import events
from turnwise.types import Attribution, Break, BreakKind, Ids, Support, Turn, TurnStop, shared

NONE = np.zeros(0, np.int32)
ARRAYS = ("prompt_ids", "completion_ids", "logprobs", "policy_versions", "support_ids", "support_offsets", "injected")
PLAIN = ("agent", "prompt_shared", "stop_reason", "temperature", "reward", "metrics", "events_shared", "events")
NO_NAMES = Attribution(NONE, np.zeros(0, np.int8), (), ())


def pack(trajectories: Sequence[Sequence[Turn]]) -> pa.ListArray:
    """One column entry a trajectory.

    Prompts [1 2] and [1 2 3 4] around a completion [3] are stored as (shared 0, [1 2]) and (shared 3, [4]).
    """
    turns = [t for own in trajectories for t in own]
    before = [b for own in trajectories for b in _turns_before(own)]
    fields = {
        "agent": pa.array([t.agent for t in turns], pa.string()),
        **_pack_prompts(turns, before),
        "completion_ids": _lists([t.completion_ids for t in turns], np.int32),
        "logprobs": _lists([t.logprobs for t in turns], np.float32),
        "policy_versions": _lists([t.policy_versions for t in turns], np.int32),
        "stop_reason": pa.array([t.stop_reason.value for t in turns], pa.string()),
        "temperature": pa.array([t.temperature for t in turns], pa.float64()),
        "reward": pa.array([t.reward for t in turns], pa.float64()),
        "metrics": pa.array([list(t.metrics.items()) for t in turns], pa.map_(pa.string(), pa.float64())),
        "support_ids": _lists([t.support.ids if t.support else None for t in turns], np.int32),
        "support_offsets": _lists([t.support.offsets if t.support else None for t in turns], np.int32),
        "injected": _lists([None if t.injected is None else t.injected.astype(np.int8) for t in turns], np.int8),
        "attribution": _pack_attributions(turns, before),
        **_pack_events(turns, before),
        "prefix": _pack_prefixes(turns),
    }
    return pa.ListArray.from_arrays(_offsets([len(own) for own in trajectories]), _struct(fields))


def unpack(column: pa.ListArray) -> list[list[Turn]]:
    """The inverse of `pack`."""
    rows = _rows(column.flatten())
    return [_turns(islice(rows, length)) for length in column.value_lengths().to_pylist()]


def _turns_before(turns: Sequence[Turn]) -> Iterator[Turn | None]:
    """For each turn, the last one of the same agent."""
    last: dict[str, Turn] = {}
    for turn in turns:
        yield last.get(turn.agent)
        last[turn.agent] = turn


def _history(turn: Turn | None) -> Ids:
    return NONE if turn is None else turn.ids


def _named(turn: Turn | None) -> Attribution:
    return NO_NAMES if turn is None or turn.attribution is None else turn.attribution


def _pack_prompts(turns: Sequence[Turn], before: Sequence[Turn | None]) -> dict[str, pa.Array]:
    kept = [shared(t.prompt_ids, _history(b)) for t, b in zip(turns, before, strict=True)]
    rest = [t.prompt_ids[n:] for t, n in zip(turns, kept, strict=True)]
    return {"prompt_shared": pa.array(kept, pa.int32()), "prompt_ids": _lists(rest, np.int32)}


def _pack_attributions(turns: Sequence[Turn], before: Sequence[Turn | None]) -> pa.StructArray:
    whole = [_named(t) for t in turns]
    pairs = list(zip(whole, [_named(b) for b in before], strict=True))
    kept = [min(shared(w.message, b.message), shared(w.body, b.body)) for w, b in pairs]
    names_shared = [min(_shared_names(w.roles, b.roles), _shared_names(w.tools, b.tools)) for w, b in pairs]
    names = pa.list_(pa.string())
    fields = {
        "shared": pa.array(kept, pa.int32()),
        "message": _lists([w.message[n:] for w, n in zip(whole, kept, strict=True)], np.int32),
        "body": _lists([w.body[n:] for w, n in zip(whole, kept, strict=True)], np.int8),
        "names_shared": pa.array(names_shared, pa.int32()),
        "roles": pa.array([w.roles[n:] for w, n in zip(whole, names_shared, strict=True)], names),
        "tools": pa.array([w.tools[n:] for w, n in zip(whole, names_shared, strict=True)], names),
    }
    return _struct(fields, absent=[t.attribution is None for t in turns])


def _shared_names(a: Sequence[object], b: Sequence[object]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def _pack_events(turns: Sequence[Turn], before: Sequence[Turn | None]) -> dict[str, pa.Array]:
    """Every turn names all events so far, so that a turn stores those that are new in it."""
    kept = [_shared_names(t.events, b.events if b else ()) for t, b in zip(turns, before, strict=True)]
    rest = [events.dump(t.events[n:]) for t, n in zip(turns, kept, strict=True)]
    return {"events_shared": pa.array(kept, pa.int32()), "events": pa.array(rest, pa.string())}


def _pack_prefixes(turns: Sequence[Turn]) -> pa.StructArray:
    found = [t.prefix or Break(BreakKind.CLEAN, 0, 0) for t in turns]
    fields = {
        "kind": pa.array([p.kind.value for p in found], pa.string()),
        "turn": pa.array([p.turn for p in found], pa.int32()),
        "at": pa.array([p.at for p in found], pa.int32()),
        "old": pa.array([p.old for p in found], pa.string()),
        "new": pa.array([p.new for p in found], pa.string()),
    }
    return _struct(fields, absent=[t.prefix is None for t in turns])


def _struct(fields: dict[str, pa.Array], absent: Sequence[bool] | None = None) -> pa.StructArray:
    mask = None if absent is None else pa.array(absent, pa.bool_())
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=mask)


def _offsets(lengths: Sequence[int]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _lists(arrays: Sequence[NDArray[Any] | None], dtype: type[np.generic]) -> pa.ListArray:
    """One list an array; None is null."""
    present = [np.zeros(0, dtype) if a is None else a for a in arrays]
    values = np.concatenate([np.zeros(0, dtype), *present]).astype(dtype, copy=False)
    mask = pa.array([a is None for a in arrays], pa.bool_())
    return pa.ListArray.from_arrays(_offsets([len(a) for a in present]), pa.array(values), mask=mask)


def _split(column: pa.ListArray) -> list[NDArray[Any]]:
    """One writable array a list, all views of one buffer; null is an empty array."""
    values = np.array(column.flatten())
    ends = np.cumsum(column.value_lengths().fill_null(0))
    return [values[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)] if len(ends) else []


def _rows(column: pa.StructArray) -> Iterator[dict[str, Any]]:
    """The struct column as one dict a turn, without the null entries of absent supports and attributions."""
    names = column.field("attribution")
    values = {
        **{name: _split(column.field(name)) for name in ARRAYS},
        **{name: column.field(name).to_pylist() for name in PLAIN},
        **{name: _split(names.field(name)) for name in ("message", "body")},
        **{name: names.field(name).to_pylist() for name in ("shared", "names_shared", "roles", "tools")},
        "prefix": column.field("prefix").to_pylist(),
        "attributed": names.is_valid().to_pylist(),
        "supported": column.field("support_offsets").is_valid().to_pylist(),
        "told": column.field("injected").is_valid().to_pylist(),
    }
    for row in zip(*values.values(), strict=True):
        yield dict(zip(values, row, strict=True))


def _turns(rows: Iterable[dict[str, Any]]) -> list[Turn]:
    """The turns of one trajectory, each put together from its row and the same agent's turn before."""
    last: dict[str, Turn] = {}
    turns = []
    for row in rows:
        turns.append(_turn(row, last.get(row["agent"])))
        last[row["agent"]] = turns[-1]
    return turns


def _turn(row: dict[str, Any], before: Turn | None) -> Turn:
    return Turn(
        prompt_ids=np.concatenate([_history(before)[: row["prompt_shared"]], row["prompt_ids"]]),
        completion_ids=row["completion_ids"],
        logprobs=row["logprobs"],
        policy_versions=row["policy_versions"],
        stop_reason=TurnStop(row["stop_reason"]),
        attribution=_attribution(row, _named(before)) if row["attributed"] else None,
        support=Support(row["support_ids"], row["support_offsets"]) if row["supported"] else None,
        events=(*(before.events if before else ())[: row["events_shared"]], *events.parse(row["events"])),
        temperature=row["temperature"],
        agent=row["agent"],
        reward=row["reward"],
        metrics=dict(row["metrics"]),
        prefix=None if row["prefix"] is None else break_of(row["prefix"]),
        injected=row["injected"].astype(np.bool_) if row["told"] else None,
    )


def break_of(row: dict[str, Any]) -> Break:
    """A break from the values of its struct."""
    return Break(BreakKind(row["kind"]), row["turn"], row["at"], row["old"], row["new"])


def _attribution(row: dict[str, Any], before: Attribution) -> Attribution:
    shared, names = row["shared"], row["names_shared"]
    return Attribution(
        message=np.concatenate([before.message[:shared], row["message"]]),
        body=np.concatenate([before.body[:shared], row["body"]]),
        roles=(*before.roles[:names], *row["roles"]),
        tools=(*before.tools[:names], *row["tools"]),
    )
