"""The engine protocol as JSON: bodies and answers of a turnwise server's /engine routes, and back to our nouns.

open(prompt) -> session      step(session, number, new tokens) -> completion      fork, compact, close
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, TypeAdapter

from turnwise.errors import EngineError
from turnwise.types import Compaction, Completion, Event, Listener, Sampled, Sampling, Settings, Support, TurnStop

Name = Annotated[str, Field(pattern=r"^[!-~]{1,128}$")]


def exactly(kind: Any) -> PlainValidator:
    """Reads JSON as a dataclass without guessing: no unknown keys, no text for numbers, no NaN."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(value: Any) -> Any:
        if is_dataclass(value):
            return value
        return adapter.validate_json(json.dumps(value, allow_nan=False), strict=True, extra="forbid")

    return PlainValidator(read, json_schema_input_type=kind)


def whole(value: Any) -> Any:
    """JSON knows one kind of number: 3.0 is 3. Lists are gone through at once, since prompts are long."""
    if isinstance(value, list):
        return [whole(v) if type(v) is float else v for v in value]
    return int(value) if type(value) is float and value.is_integer() else value


Whole = BeforeValidator(whole)
Int = Annotated[int, Whole]
Number = Annotated[int, Field(ge=0, lt=2**31), Whole]
Token = Annotated[int, Field(ge=0, lt=2**31)]
Ids = Annotated[list[Token], Whole]
Drawn = Annotated[Sampling, exactly(Sampling)]


class Said(BaseModel):
    """Base of bodies: unknown fields and numbers that are none are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class OpenBody(Said):
    """Engine.open; the client names the session, so that asking again opens no second one."""

    session: Name
    prompt_ids: Ids
    sampling: Drawn
    seed: Int
    client: Annotated[str, Field(max_length=128)] = ""
    compaction: Annotated[Compaction, exactly(Compaction)] | None = None


class StepBody(Said):
    """Engine.step; `sequence` counts the steps and compactions of a session from 0: a repeat gets the first answer."""

    session: Name
    sequence: Number
    new_ids: Ids
    max_tokens: Annotated[int, Field(ge=1, lt=2**31), Whole] | None = None
    whole: bool = False
    sampling: Drawn | None = None
    seed: Int | None = None
    deadline_s: Annotated[float, Field(gt=0.0)] | None = None
    stream: bool = False


class CompactBody(Said):
    """Engine.compact."""

    session: Name
    sequence: Number
    region: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None
    settings: Annotated[Settings, exactly(Settings)] | None = None


class ForkBody(Said):
    """Engine.fork; `branch` is the name of the new session."""

    session: Name
    branch: Name
    seed: Int


class CloseBody(Said):
    """Engine.close."""

    session: Name


class Opened(BaseModel):
    """A session that is open, and how many tokens it holds."""

    session: str
    tokens: int


class Closed(BaseModel):
    """A session that is not open any more."""

    session: str


class EventWire(BaseModel):
    """types.Event; `kept` is [layers][heads][slots]."""

    at: int
    start: int
    end: int
    method: str
    kept: list[list[list[int]]]
    queries: list[int]
    source: str
    span: int
    ridge: float
    trigger: str
    before: int
    after: int
    ms: float
    residual: float

    @staticmethod
    def of(event: Event) -> EventWire:
        fields = {name: getattr(event, name) for name in EventWire.model_fields}
        return EventWire(**{**fields, "kept": event.kept.tolist(), "queries": event.queries.tolist()})

    def plain(self) -> Event:
        kept = np.array(self.kept, np.int16).reshape(_shape(self.kept))
        return Event(**{**self.model_dump(), "kept": kept, "queries": np.array(self.queries, np.int32)})


def _shape(kept: list[list[list[int]]]) -> tuple[int, int, int]:
    """Of three nested lists, also where the innermost are empty."""
    heads = kept[0] if kept else []
    return len(kept), len(heads), len(heads[0]) if heads else 0


class SupportWire(BaseModel):
    """types.Support."""

    ids: list[int]
    offsets: list[int]


class CompletionWire(BaseModel):
    """types.Completion."""

    ids: list[int]
    logprobs: list[float]
    policy_versions: list[int]
    stop_reason: TurnStop
    support: SupportWire | None = None
    events: list[EventWire] = []
    stopped_by: int | str | None = None
    top: list[list[tuple[int, float]]] = []
    injected: list[bool] | None = None

    @staticmethod
    def of(completion: Completion) -> CompletionWire:
        support = completion.support
        return CompletionWire(
            ids=completion.ids.tolist(),
            logprobs=completion.logprobs.tolist(),
            policy_versions=completion.policy_versions.tolist(),
            stop_reason=completion.stop_reason,
            support=None
            if support is None
            else SupportWire(ids=support.ids.tolist(), offsets=support.offsets.tolist()),
            events=[EventWire.of(event) for event in completion.events],
            stopped_by=completion.stopped_by,
            top=[list(row) for row in completion.top],
            injected=None if completion.injected is None else completion.injected.tolist(),
        )

    def plain(self) -> Completion:
        support = self.support
        return Completion(
            ids=np.array(self.ids, np.int32),
            logprobs=np.array(self.logprobs, np.float32),
            policy_versions=np.array(self.policy_versions, np.int32),
            stop_reason=self.stop_reason,
            support=None if support is None else Support(_ints(support.ids), _ints(support.offsets)),
            events=tuple(event.plain() for event in self.events),
            stopped_by=self.stopped_by,
            top=tuple(tuple(row) for row in self.top),
            injected=None if self.injected is None else np.array(self.injected, np.bool_),
        )


class Compacted(BaseModel):
    """What a call for compaction did; null where it would have freed nothing."""

    event: EventWire | None


def _ints(values: Sequence[int]) -> Any:
    return np.array(values, np.int32)


def heard(tokens: Sequence[Sampled]) -> dict[str, Any]:
    """An event of a streamed step: its new tokens."""
    return {"tokens": [[t.id, t.logprob, t.policy_version, list(t.top)] for t in tokens]}


def hear(event: dict[str, Any]) -> list[Sampled]:
    """The tokens of such an event."""
    return [Sampled(i, p, v, tuple((int(a), float(b)) for a, b in top)) for i, p, v, top in event.get("tokens", [])]


def tell(token: Sampled, place: int, told: list[int], listen: Listener) -> None:
    """Tell of a token that was not told of yet; one told of before has to be the same again."""
    if place < len(told):
        if told[place] != token.id:
            raise EngineError("found other tokens when a broken step was asked for again; its weights have changed")
        return
    told.append(token.id)
    listen(token)


def rest(done: Completion, told: list[int], listen: Listener) -> None:
    """All tokens of the whole completion that no event told of."""
    for place, token in enumerate(done.heard):
        tell(token, place, told, listen)
