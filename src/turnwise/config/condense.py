"""When and how an episode's history is rewritten as shorter text: `[rollout.condense]`."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.config.section import Section

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0.0)]
SEPARATORS = ["\n\n", "\n", "。", "！", "？", ". ", "! ", "? ", "；", "; ", "，", ", ", "、", " "]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(
            f"found pattern {text!r}, which cannot be read: {error}; expected a regular expression"
        ) from None
    return text


class ChunkConfig(Section):
    """Into what pieces a history is cut; each is condensed by itself, and put together they are what was cut."""

    type: Literal["recursive", "tokens", "turns"] = "recursive"
    """recursive: at the first of `separators` that makes pieces small enough, down to characters. tokens: every
    `tokens` tokens. turns: whole turns, a reply together with what answered it, and a first input as a whole."""
    tokens: Positive = 256
    """Target size of a piece, in tokens of the model that condenses."""
    separators: list[Annotated[str, Field(min_length=1)]] = SEPARATORS
    """Where to cut, best first; a separator stays with the text before it."""
    boundary: str = ""
    """A pattern before each match of which a piece begins, whatever its size: `(?m)^Passage`."""
    turns: Count = 1
    """With turns: how many of them one piece holds; 0 is all that may be condensed."""

    _readable = field_validator("boundary")(_pattern)


class WriterConfig(Section):
    """The model that condenses, with `type = "model"`."""

    source: Literal["policy", "start", "load", "endpoint"] = "policy"
    """policy: the one in training, whose summaries are turns of their own. start: a frozen copy of what it began with.
    load: another model, by `name`. endpoint: an OpenAI-compatible server at `url`."""
    name: str = ""
    """With load: `smollm2`, a folder, or a hub name. With endpoint: what the server calls the model."""
    url: str = ""
    """With endpoint: where it is, up to and including `/v1`."""
    key_env: str = "OPENAI_API_KEY"
    """With endpoint: the environment variable that holds its key; none is sent where that is empty."""
    tokenizer: str = ""
    """With endpoint: folder or hub name of its tokenizer, to count its tokens; left out, the policy's counts."""
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] = 1.0
    """How it draws; the policy needs more than 0."""
    reasoning_tokens: Count = 0
    """Room for its reasoning, beyond the budget of the summary."""
    timeout_s: Seconds = 60.0
    """With endpoint: seconds that one answer may take."""
    retries: Count = 2
    """With endpoint: how often a failed request is tried again before the original text stays."""
    parallel: Positive = 8
    """With endpoint: requests at a time."""

    @model_validator(mode="after")
    def _found(self) -> Self:
        if self.source == "load" and not self.name:
            raise ValueError('found source "load" without name; expected `smollm2`, a folder, or a hub name')
        if self.source == "endpoint" and not (self.url.startswith(("http://", "https://")) and self.name):
            raise ValueError(
                f'found source "endpoint" with url {self.url!r} and name {self.name!r}; expected the address, such as '
                "http://127.0.0.1:8000/v1, and the name that the server knows the model by"
            )
        if self.source == "policy" and self.temperature == 0.0:
            raise ValueError("found temperature 0 with source policy; expected more: its summaries are sampled tokens")
        return self


class CondenseConfig(Section):
    """History outside the system prompt and the last turns, rewritten as short blocks that can be opened again.

    At least one of `max_context_tokens`, `max_input_tokens` and `every_turns` says when.
    """

    type: Literal["keywords", "model", "drop"] = "keywords"
    """keywords: the sentences that say most, by the keywords they hold. model: a model writes a summary. drop: nothing
    of the piece is left."""
    max_context_tokens: Count = 0
    """Condense when a prompt has more tokens than this; 0 is off."""
    max_input_tokens: Count = 0
    """Condense before the first turn when its prompt has more tokens than this; 0 is off."""
    every_turns: Count = 0
    """Condense after every so many turns; 0 is off."""
    protect_turns: Count = 1
    """The last turns, each a reply and what answered it, that stay as they are."""
    roles: Annotated[list[Literal["user", "tool", "assistant"]], Field(min_length=1)] = ["user", "tool"]
    """Whose messages are condensed, unless whole turns are."""
    skip: list[str] = []
    """Pieces in which one of these patterns is found stay as they are."""
    min_tokens: Positive = 16
    """Pieces with fewer tokens stay as they are; no budget is smaller."""
    ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    """Budget of a piece, as a share of its tokens."""
    query: str = ""
    """A pattern: what it finds in the conversation (its first group, if it has one) is what a condenser is told to
    look for; without one, the task's `question`, or else the first user message, of a long one the last line."""
    extract: bool = True
    """Whether the agent has the tool extract_condensed, which opens blocks, each once."""
    share: Literal["auto", "group", "episode"] = "auto"
    """Among whom equal pieces are condensed once: siblings, or the turns of one episode. auto is siblings, but episode
    for summaries that train: siblings with the same summary say nothing about it."""
    train_summaries: bool = True
    """Whether summaries by the policy share in the advantage; otherwise their tokens are masked, and counted."""
    chunk: ChunkConfig = ChunkConfig()
    model: WriterConfig = WriterConfig()

    _readable = field_validator("query")(_pattern)

    @property
    def trains(self) -> bool:
        """Whether summaries are sampled by the policy and learnt from."""
        return self.type == "model" and self.model.source == "policy" and self.train_summaries

    @property
    def shared(self) -> bool:
        """Whether siblings share what is condensed."""
        return self.share == "group" or (self.share == "auto" and not self.trains)

    @model_validator(mode="after")
    def _fires(self) -> Self:
        if not (self.max_context_tokens or self.max_input_tokens or self.every_turns):
            raise ValueError(
                "found no trigger; expected max_context_tokens, max_input_tokens or every_turns above 0: without one "
                "nothing is ever condensed"
            )
        for text in self.skip:
            _pattern(text)
        return self
