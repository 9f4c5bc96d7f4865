"""Text pieces to tokens: the pieces are joined, encoded once as a chat template's output is, and each token belongs to
the piece that holds its first character. So attribution never changes which tokens come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from renderers.base import RenderedTokens, Renderer, Tokenizer, extract_message_tool_names

from turnwise.errors import ModelError, RenderError
from turnwise.text.content import Said

Chars = NDArray[np.int64]


class Piece(NamedTuple):
    """Text with its message (-1: none), whether it is body, and whether the model writes it."""

    text: str
    message: int = -1
    body: bool = False
    sampled: bool = False


@dataclass
class Rendered(RenderedTokens):
    """Rendered tokens that also say, token by token, body (1), scaffold (0) or unknown (-1)."""

    body: list[int] = field(default_factory=list)


def encode(tokenizer: Tokenizer, text: str) -> tuple[list[int], Chars]:
    """Token ids, and the first character of each: "user\\nhi" as user|\\n|hi starts at 0, 4, 5."""
    if not text:
        return [], np.zeros(0, np.int64)
    _check(text)
    call: Any = tokenizer
    try:
        encoding = call(text, add_special_tokens=False, return_offsets_mapping=True)
    except (TypeError, NotImplementedError) as error:
        raise ModelError(
            f"found a tokenizer ({type(tokenizer).__name__}) without character offsets; expected one that takes "
            "return_offsets_mapping=True. Load the fast version of the tokenizer"
        ) from error
    ids = [int(i) for i in encoding["input_ids"]]
    return ids, _starts(tokenizer, ids, encoding["offset_mapping"])


def _check(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = text[error.start : error.end]
        raise RenderError(f"found half a character, {found!r}, in a message; expected text that UTF-8 holds") from None


def _starts(tokenizer: Tokenizer, ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Chars:
    """First characters, mended where a tokenizer reports tokens without the blanks they begin with.

    " hi" at 4 is often reported as (5, 7) and "\\n" at 4 as (5, 5); both start where the token before ended.
    """
    starts = np.zeros(len(ids), np.int64)
    end = 0
    for n, (token, (start, stop)) in enumerate(zip(ids, offsets, strict=True)):
        trimmed = start > end and decode(tokenizer, [token])[:1].isspace()
        starts[n] = end if trimmed else start
        end = max(end, stop)
    return starts


def tokenizer_of(renderer: Renderer) -> Tokenizer:
    """The tokenizer a renderer writes with; the package's own keep it private."""
    owner: Any = renderer
    found: Tokenizer = owner.tokenizer if hasattr(owner, "tokenizer") else owner._tokenizer
    return found


def decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of the tokens, special tokens included, blanks untouched."""
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def lay(tokenizer: Tokenizer, pieces: Sequence[Piece], messages: Sequence[Said], skip: int = 0) -> Rendered:
    """Tokens of the joined pieces from piece `skip` on, attributed; those before it only give the encoder context."""
    ids, starts = encode(tokenizer, "".join(piece.text for piece in pieces))
    ends = np.cumsum([len(piece.text) for piece in pieces])
    at = np.minimum(np.searchsorted(ends, starts, side="right"), len(pieces) - 1).tolist()
    kept = [(token, pieces[p]) for token, p in zip(ids, at, strict=True) if p >= skip]
    return rendered(
        [token for token, _ in kept],
        messages,
        owner=[piece.message for _, piece in kept],
        body=[int(piece.body) for _, piece in kept],
        sampled=[piece.sampled for _, piece in kept],
    )


def rendered(
    ids: list[int], messages: Sequence[Said], *, owner: list[int], body: list[int], sampled: list[bool]
) -> Rendered:
    """Tokens with their attribution; `is_content` stays empty as soon as one token is unknown."""
    listed: Any = list(messages)
    return Rendered(
        token_ids=ids,
        message_indices=owner,
        sampled_mask=sampled,
        is_content=[] if -1 in body else [b == 1 for b in body],
        message_roles=[str(m.get("role") or "") for m in messages],
        message_tool_names=extract_message_tool_names(listed),
        body=body,
    )


def after(previous: Sequence[int], extension: Rendered) -> Rendered:
    """The extension behind tokens whose attribution is not known here: message -1, not body."""
    n = len(previous)
    extension.token_ids = [*(int(i) for i in previous), *extension.token_ids]
    extension.message_indices = [-1] * n + extension.message_indices
    extension.sampled_mask = [False] * len(extension.token_ids)
    extension.is_content = (
        [False] * n + extension.is_content if extension.is_content or -1 not in extension.body else []
    )
    extension.body = [0] * n + extension.body
    return extension
