"""In: the text of a Forth program. Out: what it printed and left on the stack, or its error; bounded in everything.

Cells are 64 bits and wrap around, division floors, names have no case, as in gforth. Numbers, loops and return
addresses share the return stack, and taking one for another is an error, where gforth would go astray.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CELL = 8
ORIGIN = 1 << 16
"""The first address of memory, so that a small number is no address."""
CLOCK_EVERY = 1024
"""Steps between two looks at the clock."""
NUMBER = re.compile(r"-?[0-9]+")


class ForthError(Exception):
    """What is wrong with a program; its text is meant for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a program is stopped."""

    steps: int = 100_000
    depth: int = 1000
    memory: int = 4096
    output: int = 4096
    time_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Result:
    """What a program did until it ended or failed."""

    output: str
    stack: list[int]
    error: str | None


Step = tuple[Callable[["Machine", Any], None], Any]


@dataclass(slots=True)
class Word:
    """A name in the dictionary: built in (`run`), defined (`code`), or one that acts while compiling (`compile`)."""

    name: str
    run: Callable[[Machine], None] | None = None
    code: list[Step] = field(default_factory=list)
    compile: Callable[[Machine], None] | None = None


@dataclass(slots=True)
class Frame:
    """Where a word goes on when one that it called is done."""

    code: list[Step]
    at: int


@dataclass(slots=True)
class Loop:
    """A counted loop under way."""

    index: int
    limit: int


class Machine:
    """One program's world; `words` is the dictionary it starts from."""

    def __init__(self, words: dict[str, Word], bounds: Bounds | None = None) -> None:
        self.words = dict(words)
        self.bounds = bounds or Bounds()
        self.stack: list[int] = []
        self.returns: list[int | Frame | Loop] = []
        self.memory: list[int] = []
        self.output: list[str] = []
        self.printed = 0
        self.steps = 0
        self.until = 0.0
        self.text, self.place = "", 0
        self.defining: Word | None = None
        self.open: list[Any] = []
        self.code: list[Step] = []
        self.at = 0

    def evaluate(self, text: str) -> Result:
        """Run a program; what it prints and leaves before an error is kept."""
        self.text, self.place, self.until = text, 0, time.monotonic() + self.bounds.time_s
        error = None
        try:
            while name := self.next_word():
                self.tick()
                self._interpret(name)
            if self.defining:
                raise ForthError(f"unfinished definition of {self.defining.name}")
        except ForthError as wrong:
            error = str(wrong)
        return Result("".join(self.output), list(self.stack), error)

    def _interpret(self, name: str) -> None:
        """Compile or do what one name of the text stands for."""
        word = self.words.get(name.lower())
        if word is None:
            if not NUMBER.fullmatch(name):
                raise ForthError(f"unknown word {name}")
            self.literal(wrap(int(name[:40])))
        elif word.compile:
            word.compile(self)
        elif self.defining:
            self.emit_code(call, word)
        elif word.run:
            word.run(self)
        else:
            self._thread(word)

    def literal(self, number: int) -> None:
        """Push now, or when the definition runs."""
        if self.defining:
            self.emit_code(push, number)
        else:
            self.push(number)

    def _thread(self, word: Word) -> None:
        """Run a defined word to its end; an empty frame below it stops the thread."""
        self.code, self.at = [], 0
        call(self, word)
        while self.at < len(self.code):
            step, value = self.code[self.at]
            self.at += 1
            self.tick()
            step(self, value)

    def tick(self) -> None:
        """Count a step, and stop a program that takes too many or too long."""
        self.steps += 1
        if self.steps > self.bounds.steps:
            raise ForthError(f"stopped after {self.bounds.steps} steps")
        if self.steps % CLOCK_EVERY == 0 and time.monotonic() > self.until:
            raise ForthError(f"stopped after {self.bounds.time_s} s")

    def push(self, *numbers: int) -> None:
        self.stack.extend(map(wrap, numbers))
        if len(self.stack) > self.bounds.depth:
            raise ForthError("stack overflow")

    def pop(self, count: int) -> list[int]:
        """The top numbers, deepest first."""
        if len(self.stack) < count:
            raise ForthError("stack underflow")
        start = len(self.stack) - count
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def keep(self, item: int | Frame | Loop) -> None:
        """Put something on the return stack."""
        self.returns.append(item)
        if len(self.returns) > self.bounds.depth:
            raise ForthError("return stack overflow")

    def kept(self, kind: type, depth: int = 1) -> Any:
        """What lies on the return stack, which has to be of this kind."""
        if len(self.returns) < depth or type(self.returns[-depth]) is not kind:
            raise ForthError("return stack imbalance")
        return self.returns[-depth]

    def print(self, text: str) -> None:
        self.output.append(text)
        self.printed += len(text)
        if self.printed > self.bounds.output:
            raise ForthError(f"stopped after {self.bounds.output} characters of output")

    def cell(self, address: int) -> int:
        """The index into memory of an address."""
        index, rest = divmod(address - ORIGIN, CELL)
        if rest or not 0 <= index < len(self.memory):
            raise ForthError("invalid memory address")
        return index

    def allot(self, cells: int) -> None:
        if not 0 <= len(self.memory) + cells <= self.bounds.memory:
            raise ForthError("out of memory")
        self.memory = self.memory[: len(self.memory) + cells] + [0] * cells

    def next_word(self) -> str:
        """The next name of the text; empty at its end."""
        rest = self.text[self.place :]
        name, *_ = [*rest.split(None, 1), ""]
        self.place += len(rest) - len(rest.lstrip()) + len(name) + 1 if name else len(rest)
        return name

    def parse(self, end: str) -> str:
        """The text up to a sign, which is passed over; all of it where the sign does not come."""
        found, _, _ = self.text[self.place :].partition(end)
        self.place += len(found) + 1
        return found

    def name(self) -> str:
        """The name that a defining word is given."""
        name = self.next_word()
        if not name:
            raise ForthError("a name is missing")
        return name.lower()

    def emit_code(self, step: Callable[[Machine, Any], None], value: Any = None) -> None:
        """Add a step to the definition."""
        if self.defining is None:
            raise ForthError("this word may stand in a definition only")
        self.defining.code.append((step, value))


def wrap(number: int) -> int:
    """A number as 64 bits hold it: 2**63 is -2**63."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def push(machine: Machine, number: int) -> None:
    machine.push(number)


def call(machine: Machine, word: Word) -> None:
    """Do a word, or go into it and come back here after."""
    if word.run:
        word.run(machine)
        return
    machine.keep(Frame(machine.code, machine.at))
    machine.code, machine.at = word.code, 0


def leave_word(machine: Machine, _: Any = None) -> None:
    """Go back to where the word was called."""
    frame = machine.kept(Frame)
    machine.returns.pop()
    machine.code, machine.at = frame.code, frame.at
