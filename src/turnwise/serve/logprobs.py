"""Log-probabilities of sampled tokens in the shapes of OpenAI's two routes, and in vLLM's token route."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel

from turnwise.types import Sampled

Named = Callable[[int], tuple[str, list[int] | None]]
"""A token id to its text and bytes."""


class TopLogprob(BaseModel):
    """One of the likeliest tokens."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(TopLogprob):
    """A sampled token, and the likeliest ones in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """One entry a token."""

    content: list[TokenLogprob] | None = None
    refusal: None = None


class TextLogprobs(BaseModel):
    """/v1/completions' shape: one entry a token in each list; `text_offset` counts characters from the start."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None = None
    text_offset: list[int]


def chat(tokens: Sequence[Sampled], named: Named) -> ChatLogprobs:
    return ChatLogprobs(content=[_token(token, named) for token in tokens])


def _token(token: Sampled, named: Named) -> TokenLogprob:
    text, raw = named(token.id)
    tops = [TopLogprob(token=named(i)[0], logprob=p, bytes=named(i)[1]) for i, p in token.top]
    return TokenLogprob(token=text, logprob=token.logprob, bytes=raw, top_logprobs=tops)


def plain(tokens: Sequence[Sampled], named: Named, start: int) -> TextLogprobs:
    """`start` is where the text of the first token begins."""
    texts = [named(token.id)[0] for token in tokens]
    offsets = [start + sum(map(len, texts[:n])) for n in range(len(texts))]
    tops = [{named(i)[0]: p for i, p in token.top} for token in tokens]
    return TextLogprobs(
        tokens=texts,
        token_logprobs=[token.logprob for token in tokens],
        top_logprobs=tops if any(tops) else None,
        text_offset=offsets,
    )


def by_id(token: int) -> tuple[str, list[int] | None]:
    """The token route's names: 17 is token_id:17."""
    return f"token_id:{token}", None


def by_text(decode: Callable[[Sequence[int]], str]) -> Named:
    """Names as text; a token that is part of a character has no text of its own, only the mark for that."""

    def named(token: int) -> tuple[str, list[int] | None]:
        text = decode([token])
        return text, list(text.encode()) if "\ufffd" not in text else None

    return named
