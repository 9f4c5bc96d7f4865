"""What the compaction routes may be asked, and the same in the engine's words."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from turnwise.engine.wire import Int, Name, Token, Whole
from turnwise.errors import TooLong
from turnwise.serve.bodies import Body, Temperature, Tokens, TopP
from turnwise.serve.server import Server
from turnwise.types import Budget, Compaction, Notice, Sampling, Segments, Settings, Turns

Positive = Annotated[int, Field(ge=1, lt=2**31), Whole]
Ratio = Annotated[float, Field(gt=0.0, le=1.0)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Mode = Literal["attention_matching", "markovian"]
Source = Literal["own", "suffix", "context", "keys", "gaussian"]
ROOM = 16
"""Columns a budget has to leave beside the prompt."""
NAMES = ("used", "total", "remaining")


class Compacting(Body):
    """What both kinds of compaction requests say."""

    prompt_ids: Tokens
    compact_window: Positive | None = None
    """Compact the oldest so many tokens after the prompt; null is all of them."""
    compaction_mode: Mode = "attention_matching"
    carryover_ratio: Fraction = 0.5
    """With `markovian`, the fraction of the window, its newest, that stays."""
    compute_beta: bool = False
    """Also weigh the kept keys."""
    query_source: Source = "own"
    """Whose queries the kept values are fitted to."""
    top_p: TopP = 0.95
    seed: Int | None = None
    stop_token_ids: Annotated[list[Token], Field(max_length=256), Whole] | None = None
    """Tokens that end a response; null takes the renderer's."""


class GenerateBody(Compacting):
    """One prompt: fixed segments, or with `max_kv_len` a budget for the cache."""

    max_seq_len: Positive = 8192
    """With segments: prompt and response together are no longer than this."""
    max_tokens_per_segment: Positive | None = None
    """With segments: tokens between two compactions; null shares what is left of `max_seq_len` out evenly."""
    n_compacts: Annotated[int, Field(ge=0, le=1024), Whole] | None = None
    """With segments: how many compactions, by default 3; the response has one segment more."""
    max_kv_len: Positive | None = None
    """With a budget: the cache is compacted when it would pass this."""
    max_total_tokens: Positive | None = None
    """With a budget: longest response; null is `max_seq_len` less the prompt."""
    compact_target_ratio: Ratio = 0.3
    """Fraction of the window that is kept."""
    temperature: Temperature = 0.7
    inject_budget_message: bool = False
    """Tell the model how many tokens are left, in user messages that nobody sampled."""
    budget_message_template: Annotated[str, Field(min_length=1, max_length=1000)] = Notice().template
    inject_budget_every: Annotated[int, Field(ge=0, lt=2**31), Whole] = 0
    """Tokens between two such messages; 0 is one after each compaction."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        """Segments and a budget exclude each other, and a template names only what there is."""
        segments = [n for n in ("max_tokens_per_segment", "n_compacts") if getattr(self, n) is not None]
        if self.max_kv_len is not None and segments:
            raise ValueError(f"found max_kv_len (a budget) beside {segments[0]} (fixed segments); expected one of them")
        if self.max_kv_len is None and self.max_total_tokens is not None:
            raise ValueError("found max_total_tokens without max_kv_len; expected both, or max_seq_len with segments")
        _fill(self.budget_message_template)
        return self

    @property
    def room(self) -> int:
        """Tokens the response may have."""
        if self.max_total_tokens is not None:
            return self.max_total_tokens
        left = max(self.max_seq_len - len(self.prompt_ids), 1)
        if self.max_kv_len is not None or self.max_tokens_per_segment is None:
            return left
        return min(left, self.max_tokens_per_segment * (self.compactions + 1))

    @property
    def compactions(self) -> int:
        return 3 if self.n_compacts is None else self.n_compacts

    def compaction(self) -> Compaction:
        return Compaction(
            rule=self._rule(),
            settings=settings(self, self.compact_target_ratio),
            protect=len(self.prompt_ids),
            notice=Notice(self.budget_message_template, self.inject_budget_every)
            if self.inject_budget_message
            else None,
        )

    def _rule(self) -> Segments | Budget | None:
        if self.max_kv_len is not None:
            return Budget(self.max_kv_len, window=self.compact_window)
        every = self.max_tokens_per_segment or max(-(-self.room // (self.compactions + 1)), 1)
        return Segments(every, self.compact_window, max_events=self.compactions) if self.compactions else None


class CreateBody(Compacting):
    """A conversation whose cache lives on the server."""

    session_id: Name | None = None
    max_kv_len: Positive | None = None
    """The cache is compacted when it would pass this; null never."""
    max_response_tokens: Positive = 512
    compact_target_ratio: Ratio = 0.25
    n_protect_turns: Annotated[int, Field(ge=-1, lt=2**31), Whole] = -1
    """From 0 on: compact after each complete response all turns but the last so many; turns the budget off."""
    temperature: Temperature = 0.6

    def compaction(self) -> Compaction:
        return Compaction(self._rule(), settings(self, self.compact_target_ratio), protect=len(self.prompt_ids))

    def _rule(self) -> Turns | Budget | None:
        if self.n_protect_turns >= 0:
            return Turns(self.n_protect_turns)
        return None if self.max_kv_len is None else Budget(self.max_kv_len, window=self.compact_window)

    @property
    def warnings(self) -> list[str]:
        """What was said that has no effect."""
        beside = [n for n in ("compact_window", "max_kv_len") if getattr(self, n) is not None]
        if self.n_protect_turns < 0:
            return []
        return [f"n_protect_turns {self.n_protect_turns} turns the budget off: {name} has no effect" for name in beside]


def fit(body: GenerateBody | CreateBody) -> None:
    """Refuse a prompt that leaves no room to work in: what is protected stays, and a few tokens have to come and go."""
    rule, prompt = body.compaction().rule, len(body.prompt_ids)
    if isinstance(rule, Budget) and rule.max_kv_tokens < prompt + ROOM:
        raise TooLong(
            f"found max_kv_len {rule.max_kv_tokens} for a prompt of {prompt} tokens, which always stay; expected at "
            f"least {prompt + ROOM}, or nearly every token would compact; raise max_kv_len"
        )
    if isinstance(body, GenerateBody) and prompt >= body.max_seq_len:
        raise TooLong(f"found {prompt} tokens of prompt; expected fewer than max_seq_len {body.max_seq_len}")


def settings(body: Compacting, ratio: float) -> Settings:
    """`attention_matching` is our `match`, `markovian` our `delete`."""
    matching = body.compaction_mode == "attention_matching"
    return Settings(
        method="match" if matching else "delete",
        ratio=ratio,
        carry_ratio=body.carryover_ratio,
        bias=body.compute_beta,
        source=body.query_source,
    )


def sampling(body: Compacting, server: Server, temperature: float, limit: int) -> Sampling:
    ends = server.renderer.get_stop_token_ids() if body.stop_token_ids is None else body.stop_token_ids
    return Sampling(temperature=temperature, max_tokens=limit, top_p=body.top_p, stop_ids=tuple(ends))


def _fill(template: str) -> None:
    """Refuse a template that names something else."""
    expected = f"one that names only {', '.join('{' + name + '}' for name in NAMES)}"
    try:
        template.encode()
        plain = Notice(template).plain
    except UnicodeEncodeError:
        plain = False
    if not plain:
        raise ValueError(f"found budget_message_template {template[:80]!r}; expected {expected}")
