"""The words a program starts from, each with its stack effect and a sentence: what `lookup_docs` tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnwise.envs.forth import control
from turnwise.envs.forth.machine import CELL, ORIGIN, ForthError, Loop, Machine, Word, wrap


@dataclass(frozen=True, slots=True)
class Doc:
    """What is told about a word."""

    effect: str
    meaning: str

    def line(self, name: str) -> str:
        return f"{name} ( {self.effect} ) {self.meaning}"


def flag(truth: bool) -> int:
    return -1 if truth else 0


def unsigned(number: int) -> int:
    return number % (1 << 64)


def divide(a: int, b: int) -> tuple[int, int]:
    """Remainder and quotient, rounded down."""
    if b == 0:
        raise ForthError("division by zero")
    quotient, remainder = divmod(a, b)
    if not -(1 << 63) <= quotient < 1 << 63:
        raise ForthError("result out of range")
    return remainder, quotient


def shift(places: int) -> int:
    if not 0 <= places < 64:
        raise ForthError("a shift is by 0 to 63 places")
    return places


Pure = Callable[..., Any]
PURE: dict[str, tuple[str, str, Pure]] = {
    "+": ("a b -- n", "adds", lambda a, b: a + b),
    "-": ("a b -- n", "subtracts b from a", lambda a, b: a - b),
    "*": ("a b -- n", "multiplies", lambda a, b: a * b),
    "/": ("a b -- n", "divides a by b, rounded down", lambda a, b: divide(a, b)[1]),
    "mod": ("a b -- n", "the remainder of a divided by b", lambda a, b: divide(a, b)[0]),
    "/mod": ("a b -- remainder quotient", "divides a by b, rounded down", divide),
    "*/": ("a b c -- n", "a times b divided by c, rounded down", lambda a, b, c: divide(a * b, c)[1]),
    "negate": ("a -- n", "changes the sign", lambda a: -a),
    "abs": ("a -- n", "the absolute value", lambda a: abs(a)),
    "min": ("a b -- n", "the smaller one", min),
    "max": ("a b -- n", "the larger one", max),
    "1+": ("a -- n", "adds one", lambda a: a + 1),
    "1-": ("a -- n", "subtracts one", lambda a: a - 1),
    "2*": ("a -- n", "doubles", lambda a: a * 2),
    "2/": ("a -- n", "halves, rounded down", lambda a: a >> 1),
    "and": ("a b -- n", "the bits set in both", lambda a, b: a & b),
    "or": ("a b -- n", "the bits set in either", lambda a, b: a | b),
    "xor": ("a b -- n", "the bits set in one of the two only", lambda a, b: a ^ b),
    "invert": ("a -- n", "turns every bit over", lambda a: ~a),
    "lshift": ("a n -- b", "moves the bits of a up by n places", lambda a, n: a << shift(n)),
    "rshift": (
        "a n -- b",
        "moves the bits of a down by n places, filling with 0",
        lambda a, n: unsigned(a) >> shift(n),
    ),
    "=": ("a b -- flag", "true if equal", lambda a, b: flag(a == b)),
    "<>": ("a b -- flag", "true if different", lambda a, b: flag(a != b)),
    "<": ("a b -- flag", "true if a is less than b", lambda a, b: flag(a < b)),
    ">": ("a b -- flag", "true if a is greater than b", lambda a, b: flag(a > b)),
    "<=": ("a b -- flag", "true if a is at most b", lambda a, b: flag(a <= b)),
    ">=": ("a b -- flag", "true if a is at least b", lambda a, b: flag(a >= b)),
    "u<": (
        "a b -- flag",
        "true if a is less than b, both taken without sign",
        lambda a, b: flag(unsigned(a) < unsigned(b)),
    ),
    "0=": ("a -- flag", "true if zero", lambda a: flag(a == 0)),
    "0<>": ("a -- flag", "true if not zero", lambda a: flag(a != 0)),
    "0<": ("a -- flag", "true if less than zero", lambda a: flag(a < 0)),
    "0>": ("a -- flag", "true if greater than zero", lambda a: flag(a > 0)),
    "within": (
        "a low high -- flag",
        "true if low <= a < high",
        lambda a, b, c: flag(unsigned(a - b) < unsigned(c - b)),
    ),
    "true": ("-- -1", "the flag for true", lambda: -1),
    "false": ("-- 0", "the flag for false", lambda: 0),
    "dup": ("a -- a a", "copies the top", lambda a: (a, a)),
    "drop": ("a --", "removes the top", lambda a: ()),
    "swap": ("a b -- b a", "exchanges the top two", lambda a, b: (b, a)),
    "over": ("a b -- a b a", "copies the second", lambda a, b: (a, b, a)),
    "nip": ("a b -- b", "removes the second", lambda a, b: b),
    "tuck": ("a b -- b a b", "copies the top below the second", lambda a, b: (b, a, b)),
    "rot": ("a b c -- b c a", "brings the third to the top", lambda a, b, c: (b, c, a)),
    "-rot": ("a b c -- c a b", "puts the top below the third", lambda a, b, c: (c, a, b)),
    "2dup": ("a b -- a b a b", "copies the top two", lambda a, b: (a, b, a, b)),
    "2drop": ("a b --", "removes the top two", lambda a, b: ()),
    "2swap": ("a b c d -- c d a b", "exchanges the top two pairs", lambda a, b, c, d: (c, d, a, b)),
    "2over": ("a b c d -- a b c d a b", "copies the second pair", lambda a, b, c, d: (a, b, c, d, a, b)),
    "cells": ("n -- bytes", "the bytes that n cells take", lambda n: n * CELL),
}
"""Words that only turn numbers into numbers; how many they take stands in their stack effect."""


def _pure(effect: str, work: Pure) -> Callable[[Machine], None]:
    taken = len(effect.split("--")[0].split())

    def run(machine: Machine) -> None:
        made = work(*machine.pop(taken))
        machine.push(*(made if isinstance(made, tuple) else (made,)))

    return run


def _pick(m: Machine) -> None:
    (n,) = m.pop(1)
    if not 0 <= n < len(m.stack):
        raise ForthError("stack underflow")
    m.push(m.stack[-1 - n])


def _roll(m: Machine) -> None:
    (n,) = m.pop(1)
    if not 0 <= n < len(m.stack):
        raise ForthError("stack underflow")
    m.push(m.stack.pop(-1 - n))


def _maybe_dup(m: Machine) -> None:
    (n,) = m.pop(1)
    m.push(*([n, n] if n else [n]))


def _from_returns(m: Machine) -> None:
    m.push(m.kept(int))
    m.returns.pop()


def _unloop(m: Machine) -> None:
    m.kept(Loop)
    m.returns.pop()


def _outer_index(m: Machine) -> None:
    m.kept(Loop)
    m.push(m.kept(Loop, 2).index)


def _store(m: Machine) -> None:
    number, address = m.pop(2)
    m.memory[m.cell(address)] = number


def _add_to(m: Machine) -> None:
    number, address = m.pop(2)
    place = m.cell(address)
    m.memory[place] = wrap(m.memory[place] + number)


def _comma(m: Machine) -> None:
    (number,) = m.pop(1)
    m.allot(1)
    m.memory[-1] = number


def _allot(m: Machine) -> None:
    (size,) = m.pop(1)
    if size % CELL:
        raise ForthError(f"allot takes whole cells, {CELL} bytes each")
    m.allot(size // CELL)


def _show(m: Machine) -> None:
    m.print(" ".join([f"<{len(m.stack)}>", *map(str, m.stack[-9:]), ""]))


def _spaces(m: Machine) -> None:
    (n,) = m.pop(1)
    m.print(" " * max(0, min(n, m.bounds.output + 1)))


Act = Callable[[Machine], None]
ACTS: dict[str, tuple[str, str, Act]] = {
    ".": ("n --", "prints a number and a space", lambda m: m.print(f"{m.pop(1)[0]} ")),
    "u.": ("n --", "prints a number taken without sign, and a space", lambda m: m.print(f"{unsigned(m.pop(1)[0])} ")),
    ".s": ("--", "prints how many numbers the stack holds, and the nine on top", _show),
    "emit": ("c --", "prints the character with this number", lambda m: m.print(chr(m.pop(1)[0] % 128))),
    "cr": ("--", "starts a new line", lambda m: m.print("\n")),
    "space": ("--", "prints a space", lambda m: m.print(" ")),
    "spaces": ("n --", "prints n spaces", _spaces),
    "depth": ("-- n", "how many numbers the stack holds", lambda m: m.push(len(m.stack))),
    "pick": ("n -- a", "copies the n-th number below, 0 being the top", _pick),
    "roll": ("n -- a", "brings the n-th number below to the top", _roll),
    "?dup": ("n -- n n | 0", "copies the top unless it is zero", _maybe_dup),
    ">r": ("n --", "moves the top to the return stack", lambda m: m.keep(m.pop(1)[0])),
    "r>": ("-- n", "brings the top of the return stack back", _from_returns),
    "r@": ("-- n", "copies the top of the return stack", lambda m: m.push(m.kept(int))),
    "i": ("-- n", "the index of the loop", lambda m: m.push(m.kept(Loop).index)),
    "j": ("-- n", "the index of the loop around this one", _outer_index),
    "unloop": ("--", "forgets the loop, before exit", _unloop),
    "@": ("address -- n", "reads a cell", lambda m: m.push(m.memory[m.cell(m.pop(1)[0])])),
    "!": ("n address --", "writes a cell", _store),
    "+!": ("n address --", "adds to a cell", _add_to),
    "?": ("address --", "prints a cell", lambda m: m.print(f"{m.memory[m.cell(m.pop(1)[0])]} ")),
    "here": ("-- address", "where the next cell will be", lambda m: m.push(ORIGIN + CELL * len(m.memory))),
    ",": ("n --", "puts a number into a new cell", _comma),
    "allot": ("bytes --", "makes room for more cells", _allot),
}
"""Words that do more than that."""
INSIDE_ONLY = {">r", "r>", "r@", "i", "j", "unloop"}
"""Words about the return stack have a meaning in a definition only."""


def _inside(act: Act) -> Callable[[Machine], None]:
    def compile(machine: Machine) -> None:
        machine.emit_code(lambda m, _: act(m))

    return compile


def _word(name: str, run: Act) -> Word:
    return Word(name, compile=_inside(run)) if name in INSIDE_ONLY else Word(name, run)


WORDS: dict[str, Word] = {
    **{name: Word(name, _pure(effect, work)) for name, (effect, _, work) in PURE.items()},
    **{name: _word(name, run) for name, (_, _, run) in ACTS.items()},
    **{name: Word(name, compile=act) for name, (_, _, act) in control.CONTROL.items()},
}
DOCS: dict[str, Doc] = {
    name: Doc(effect, meaning)
    for table in (PURE, ACTS, control.CONTROL)
    for name, (effect, meaning, _) in table.items()
}
