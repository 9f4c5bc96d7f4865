"""Programming tasks made by the machine, in tiers; each is split into training and held-out by the word it needs.

tier 0   one word                            "the sum of a and b"                    +
tier 1   a word, then one of four common     "the sum of a and b, negated"           + negate
tier 2   a choice between two                "if a is less than b: ..., otherwise"   2dup < if + else drop then
tier 3   a counted loop in a definition      "the sum of i squared, for i from 0"    : f 0 swap 0 ?do ... loop ; f
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from turnwise.envs.forth.machine import Machine, Result
from turnwise.envs.forth.words import WORDS
from turnwise.types import Task

TIERS = (0, 1, 2, 3)
TWO = {
    "+": "the sum of a and b",
    "-": "a minus b",
    "*": "the product of a and b",
    "/": "a divided by b, rounded down",
    "mod": "the remainder of a divided by b",
    "min": "the smaller of a and b",
    "max": "the larger of a and b",
    "and": "the bits set in both a and b",
    "or": "the bits set in a or b",
    "xor": "the bits set in only one of a and b",
    "=": "-1 if a and b are equal, else 0",
    "<": "-1 if a is less than b, else 0",
    ">": "-1 if a is greater than b, else 0",
    "nip": "only b",
    "drop": "only a",
    "swap": "b and a, exchanged",
    "over": "a, b and a again",
    "tuck": "b, a and b again",
    "2dup": "a, b, a and b",
    "/mod": "the remainder and the quotient of a divided by b",
}
"""Words for two numbers, a below b, and what they leave."""
ONE = {
    "negate": "the number with its sign changed",
    "abs": "its absolute value",
    "1+": "one more than it",
    "1-": "one less than it",
    "2*": "twice the number",
    "2/": "half of it, rounded down",
    "invert": "all its bits turned over",
    "dup": "it, twice",
    "0=": "-1 if it is zero, else 0",
    "0<": "-1 if it is less than zero, else 0",
}
"""Words for one number, called a."""
THEN = {"negate": "with the sign changed", "1+": "plus one", "2*": "doubled", "abs": "without its sign"}
"""Words that may follow in any tier above 0."""
COMMON = {0: (), 1: (*THEN,), 2: ("nip", "drop", "2dup", "<", ">", "="), 3: (*THEN, "i", "+", "*", "dup", "swap")}
"""Words that the tasks of a tier use beside the one that decides their side: they are seen on both sides of the split,
and tasks about them are split one by one."""
TESTS = {"<": "a is less than b", ">": "a is greater than b", "=": "a equals b", "<>": "a and b differ"}
SEVERAL = ("swap", "over", "tuck", "2dup", "/mod")
"""Of the words for two, those that leave more than one number."""
EACH = {"": "i", "dup *": "i squared", "2*": "twice i", "1+": "i plus one", "negate": "i with its sign changed"}


@dataclass(frozen=True, slots=True)
class Made:
    """A task before it is numbered: the goal in words, a program that reaches it, the word that decides its side."""

    goal: str
    program: str
    needs: str
    takes: int


def tasks(tiers: Sequence[int], words: Sequence[str], split: str) -> Iterator[Task]:
    """Tasks without end, tiers evenly mixed; with the same arguments the n-th is always the same."""
    common = {word for tier in tiers for word in COMMON[tier]}
    for n in count():
        rng = Random(f"forth/{n}")
        tier = tiers[n % len(tiers)]
        made = MAKERS[tier](rng, words)
        data = {
            "tier": tier,
            "goal": made.goal,
            "program": made.program,
            "inputs": [_input(rng, made.takes, tier) for _ in range(5)],
        }
        held = split == "word" and made.needs not in common
        yield Task(f"forth/{tier}/{n}", data, split=f"forth/{made.needs}" if held else None)


def single(words: Sequence[str]) -> list[str]:
    """Those of the words that turn two numbers into one."""
    return [word for word in words if word in TWO and word not in SEVERAL]


def solve(program: str, given: Sequence[int]) -> Result:
    """What a program does to numbers that lie on the stack already."""
    machine = Machine(WORDS)
    machine.push(*given)
    return machine.evaluate(program)


def _input(rng: Random, takes: int, tier: int) -> list[int]:
    """Numbers small enough to be read; never a zero to divide by, never a loop of negative length."""
    if tier == 3:
        return [rng.randint(0, 12)]
    return [*(rng.randint(-20, 20) for _ in range(takes - 1)), rng.choice([n for n in range(-20, 21) if n])]


def _one_word(rng: Random, words: Sequence[str]) -> Made:
    word = rng.choice(words)
    return Made(TWO[word], word, word, 2) if word in TWO else Made(ONE[word], word, word, 1)


def _two_words(rng: Random, words: Sequence[str]) -> Made:
    word, last = rng.choice(single(words)), rng.choice([*THEN])
    return Made(f"{TWO[word]}, and the result {THEN[last]}", f"{word} {last}", word, 2)


def _choice(rng: Random, words: Sequence[str]) -> Made:
    test, no = rng.choice([*TESTS]), rng.choice(("nip", "drop"))
    yes = rng.choice([word for word in single(words) if word != no])
    goal = f"if {TESTS[test]}: {TWO[yes]}; otherwise: {TWO[no]}"
    return Made(goal, f": f 2dup {test} if {yes} else {no} then ; f", yes, 2)


def _sum(rng: Random, words: Sequence[str]) -> Made:  # noqa: ARG001 - what is summed is not chosen from them
    each, last = rng.choice([*EACH]), rng.choice([*THEN])
    goal = f"the sum of {EACH[each]}, for every i from 0 up to but not including a, and the result {THEN[last]}"
    return Made(goal, f": f 0 swap 0 ?do i {each} + loop ; f {last}", each or "i", 1)


MAKERS: dict[int, Callable[[Random, Sequence[str]], Made]] = {0: _one_word, 1: _two_words, 2: _choice, 3: _sum}
