"""What all request bodies have in common: unknown fields are refused, types are exact, and how replies are drawn."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from turnwise.engine.sample import COLDEST, LEAST
from turnwise.engine.wire import Int, Name, Token, Whole
from turnwise.serve.server import Server
from turnwise.types import Sampling

MOST_CHOICES = 64
MOST_TOP = 20


def _warm(temperature: float) -> float:
    if 0.0 < temperature < COLDEST:
        raise ValueError(f"0 (greedy), or {COLDEST} and more")
    return temperature


Positive = Annotated[int, Field(ge=1), Whole]
Tokens = Annotated[list[Token], Field(min_length=1), Whole]
Temperature = Annotated[float, Field(ge=0.0, le=100.0), AfterValidator(_warm)]
TopP = Annotated[float, Field(ge=LEAST, le=1.0)]
StopText = Annotated[str, Field(min_length=1, max_length=256)]
Neutral = Annotated[float, Field(ge=0.0, le=0.0)]
One = Annotated[float, Field(ge=1.0, le=1.0)]
SessionId = Annotated[Name | None, Header(alias="X-Session-ID", description="Makes the request one of a session.")]
Nought = Annotated[int, Field(ge=0, le=0), Whole]


Biases = Annotated[
    dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Annotated[float, Field(ge=-100.0, le=100.0)]],
    WithJsonSchema(
        {
            "type": "object",
            "patternProperties": {"^[0-9]{1,9}$": {"type": "number", "minimum": -100, "maximum": 100}},
            "additionalProperties": False,
        }
    ),
]
"""Token ids, as text, to what is added to their logits."""


class Body(BaseModel):
    """Base of request bodies."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Drawn(Body):
    """How a reply is drawn. Penalties and other rules that would make log-probabilities inexact may only be neutral."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, Field(ge=-1), Whole] | None = None
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    seed: Int | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[Token], Field(max_length=256), Whole] | None = None
    ignore_eos: bool = False
    logit_bias: Biases | None = None
    frequency_penalty: Neutral | None = None
    presence_penalty: Neutral | None = None
    repetition_penalty: One | None = None
    min_tokens: Nought | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def sampling(body: Drawn, server: Server, *, max_tokens: int | None, top: int, ends: bool) -> Sampling:
    """The engine's words for a body; `ends` adds the renderer's stop tokens."""
    own = () if body.ignore_eos or not ends else tuple(server.renderer.get_stop_token_ids())
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        max_tokens=max_tokens or server.config.max_tokens,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(body.top_k or 0, 0),
        min_p=body.min_p or 0.0,
        stop_ids=tuple(dict.fromkeys([*own, *(body.stop_token_ids or ())])),
        stop=body.stops,
        logit_bias=tuple((int(token), bias) for token, bias in (body.logit_bias or {}).items()),
        top_logprobs=top,
    )


class Unused(Body):
    """Fields of other servers that change nothing here."""

    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    priority: Int | None = None


class StreamOptions(Body):
    """What a stream says beside its tokens."""

    include_usage: bool = False


class Usage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @staticmethod
    def of(prompt: int, completion: int) -> Usage:
        return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
