"""What is known about a rendered conversation (message ends, bodies) to one owner and one body mark a character."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]


def spread(
    length: int, edges: Sequence[int | None], bodies: Mapping[int, Span], missing: Collection[int]
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Owner (message or -1) and body (1, 0, -1 unknown) of each character.

    `edges[n]` is where the first n messages end, None where the text does not show it. A missing body may stand
    anywhere between what is known before it and after it:

        <u>hi</u>|<a>??</a>    edges [0, 9, 18], bodies {0: (3, 5)}, missing [1]
        owner 000000000111111111    body 000110000---------
    """
    owner = np.full(length, -1, np.int32)
    body = np.zeros(length, np.int8)
    for n, (begin, end) in enumerate(pairwise(edges)):
        if begin is not None and end is not None:
            owner[begin:end] = n
    for n in missing:
        gap = _gap(n, length, edges, bodies)
        body[gap] = -1
    for n, (begin, end) in bodies.items():
        owner[begin:end], body[begin:end] = n, 1
    return owner, body


def _gap(n: int, length: int, edges: Sequence[int | None], bodies: Mapping[int, Span]) -> slice:
    """The narrowest stretch that surely holds the body of message n."""
    before = [e for e in edges[: n + 1] if e is not None] + [end for m, (_, end) in bodies.items() if m < n]
    behind = [e for e in edges[n + 1 :] if e is not None] + [begin for m, (begin, _) in bodies.items() if m > n]
    return slice(max(before, default=0), min(behind, default=length))
