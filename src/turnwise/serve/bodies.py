"""What all request bodies have in common: unknown fields are refused, types are exact, and how replies are drawn."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Header
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from turnwise.serve.problem import Problem
from turnwise.serve.server import Server
from turnwise.types import Sampling

MOST_CHOICES = 64
MOST_TOP = 20
COLDEST = 1e-3
"""Below this temperature logits overflow; greedy is 0."""


def _warm(temperature: float) -> float:
    if 0.0 < temperature < COLDEST:
        raise ValueError(f"0 (greedy), or {COLDEST} and more")
    return temperature


Token = Annotated[int, Field(ge=0, lt=2**31)]
Tokens = Annotated[list[Token], Field(min_length=1)]
Temperature = Annotated[float, Field(ge=0.0, le=100.0), AfterValidator(_warm)]
TopP = Annotated[float, Field(ge=1e-6, le=1.0)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**64)]
Name = Annotated[str, Field(pattern=r"^[!-~]{1,128}$")]
StopText = Annotated[str, Field(min_length=1, max_length=256)]
Neutral = Annotated[float, Field(ge=0.0, le=0.0)]
One = Annotated[float, Field(ge=1.0, le=1.0)]
SessionId = Annotated[Name | None, Header(alias="X-Session-ID", description="Makes the request one of a session.")]
Nought = Annotated[int, Field(ge=0, le=0)]


class Body(BaseModel):
    """Base of request bodies."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Drawn(Body):
    """How a reply is drawn. Penalties and other rules that would make log-probabilities inexact may only be neutral."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    seed: Seed | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[Token], Field(max_length=256)] | None = None
    ignore_eos: bool = False
    logit_bias: dict[str, Annotated[float, Field(ge=-100.0, le=100.0)]] | None = None
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
        logit_bias=_bias(body.logit_bias),
        top_logprobs=top,
    )


def _bias(given: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    for key in given or {}:
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise Problem(
                422,
                f"{key[:40]!r} as a key of 'logit_bias'",
                "token ids, as text",
                "Change 'logit_bias'.",
                param="logit_bias",
            )
    return tuple((int(key), bias) for key, bias in (given or {}).items())


class Unused(Body):
    """Fields of other servers that change nothing here."""

    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    priority: int | None = None


class StreamOptions(Body):
    """What a stream says beside its tokens."""

    include_usage: bool = False
    continuous_usage_stats: Literal[False] | None = None


class Usage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @staticmethod
    def of(prompt: int, completion: int) -> Usage:
        return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
