"""Whether an answer equals the right one, as math-verify reads both; run in a process of its own."""

from __future__ import annotations

import logging

logging.getLogger("math_verify").setLevel(logging.ERROR)
"""It warns of every call without a clock of its own; the clock is outside, where it can end anything."""

BOX = "\\boxed{"


def check(gold: str, reply: str) -> list[bool]:
    """Whether the reply is right, and whether it says any answer: check("7", "So it is \\boxed{14/2}") is both.

    The last boxed answer counts, else the last number.
    """
    from math_verify import parse, verify

    said = parse(boxed(reply) or reply, parsing_timeout=None)
    right = bool(said) and bool(verify(parse(gold, parsing_timeout=None), said, timeout_seconds=None))
    return [right, bool(said)]


def boxed(reply: str) -> str | None:
    """The last box with its braces: boxed("\\boxed{1} or \\boxed{\\frac{1}{2}}.") is "\\boxed{\\frac{1}{2}}"."""
    start = reply.rfind(BOX)
    depth = 0
    for place in range(start + len(BOX) - 1, len(reply)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(reply[place], 0)
        if not depth:
            return reply[start : place + 1]
    return None
