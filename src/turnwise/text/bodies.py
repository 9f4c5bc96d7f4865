"""Where message bodies stand in text that an opaque template drew: the template is drawn again with marks in place of
bodies, and a body counts as found only if the drawn text is exactly the marked one with the bodies put back."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from turnwise.text.content import Said, text_of
from turnwise.types import Message

Span = tuple[int, int]
Draw = Callable[[Sequence[Said]], str | None]
# Private-use characters: no template trims them, none mean anything.
MARK = re.compile("\ue0a3([0-9]+)\ue0a4")


def mark(n: int) -> str:
    return f"\ue0a3{n}\ue0a4"


def find(draw: Draw, messages: Sequence[Said], wanted: Collection[int], text: str) -> dict[int, Span]:
    """Character spans of the wanted messages' bodies, without those that cannot be told for certain.

    All marks at once where the template does not look at bodies; else one at a time.
    """
    together = _fit(draw, messages, wanted, text)
    if together is not None:
        return together
    alone = [_fit(draw, messages, [n], text) for n in wanted]
    return {n: span for spans in alone if spans for n, span in spans.items()}


def _fit(draw: Draw, messages: Sequence[Said], wanted: Collection[int], text: str) -> dict[int, Span] | None:
    """Spans from one drawing: marked "<u>M0</u>" and text "<u>hi</u>" give {0: (3, 5)}; None if they do not fit."""
    marked = draw([_marked(message, n) if n in wanted else message for n, message in enumerate(messages)])
    if marked is None or sorted(int(n) for n in MARK.findall(marked)) != sorted(wanted):
        return None
    parts = MARK.split(marked)
    at, spans = len(parts[0]), dict[int, Span]()
    if not text.startswith(parts[0]):
        return None
    for number, scaffold in zip(parts[1::2], parts[2::2], strict=True):
        body = text_of(messages[int(number)])
        # Templates that trim bodies leave the stripped one.
        fits = [b for b in (body, body.strip()) if text.startswith(b + scaffold, at)]
        if not fits:
            return None
        spans[int(number)] = (at, at + len(fits[0]))
        at += len(fits[0]) + len(scaffold)
    return spans if at == len(text) else None


def _marked(message: Said, n: int) -> Message:
    return {**message, "content": mark(n)}
