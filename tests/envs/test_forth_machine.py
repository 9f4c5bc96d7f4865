"""The bounded Forth: what its words do, where it stops, and that gforth does the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from forth_programs import Writer

from turnwise.envs.forth.machine import Bounds, Machine, Result
from turnwise.envs.forth.words import DOCS, WORDS

HARNESS = """warnings off
: case ( addr u -- ) ['] evaluate catch 0 state !
  if clearstack ." |E" else ." |" depth 0 ?do depth i - 1- pick . loop then clearstack ." ~" cr ;
"""


def run(program: str, **bounds: float) -> Result:
    return Machine(WORDS, Bounds(**bounds)).evaluate(program)  # type: ignore[arg-type]


def seen(result: Result) -> str:
    """What both machines can be compared by: output, then the stack or an E."""
    return result.output + "|" + ("E" if result.error else "".join(f"{n} " for n in result.stack))


def gforth(place: Path, programs: list[str]) -> list[str]:
    """What gforth makes of each program, all in one process."""
    quoted = (program.replace("\\", "\\\\").replace('"', "\\q") for program in programs)
    lines = "\n".join(f's\\" {text}" case' for text in quoted)
    (place / "all.fs").write_text(f"{HARNESS}{lines}\nbye\n")
    said = subprocess.run(["gforth", place / "all.fs"], capture_output=True, text=True, timeout=60)
    return said.stdout.split("~\n")[:-1]


@pytest.mark.parametrize(
    ("program", "output", "stack"),
    [
        ("7 3 -", "", [4]),
        ("-7 2 / -7 2 mod", "", [-4, 1]),
        ("9223372036854775807 1+", "", [-(2**63)]),
        (": square dup * ; 7 SQUARE", "", [49]),
        (": f 0= if 1 else 2 then ; 0 f 5 f", "", [1, 2]),
        (": f 3 0 do i . loop ; f", "0 1 2 ", []),
        (": f 0 do i . -2 +loop ; -5 f", "0 -2 -4 ", []),
        (": f ?do 1 loop ; 4 4 f", "", []),
        (": f dup 1 > if dup 1- recurse * then ; 5 f", "", [120]),
        (": f begin dup while dup . 1- repeat ; 2 f", "2 1 ", [0]),
        (": f 2 0 do 2 0 do j i + . loop loop ; f", "0 1 1 2 ", []),
        (": f 9 0 do i 2 = if unloop exit then i loop ; f", "", [0, 1]),
        ('variable x 5 x ! 2 x +! x @ ." so" x ?', "so7 ", [7]),
        ("create list 4 , 5 , list 1 cells + @", "", [5]),
        ("1 2 ( a comment ) 3 \\ and another\n .s", "<3> 1 2 3 ", [1, 2, 3]),
        ("10 constant ten ten char A emit", "A", [10]),
    ],
)
def test_programs_print_and_leave_what_forth_says(program: str, output: str, stack: list[int]) -> None:
    assert run(program) == Result(output, stack, None)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("1 +", "stack underflow"),
        ("1 0 /", "division by zero"),
        ("nope", "unknown word nope"),
        ("if", "this word may stand in a definition only"),
        (": f if ;", "unstructured: if is not closed"),
        (": f then ;", "unstructured: this does not close what was opened last"),
        (": f 1", "unfinished definition of f"),
        (": f >r ; 1 f", "return stack imbalance"),
        (": f r> ; f", "return stack imbalance"),
        ("5 @", "invalid memory address"),
        (":", "a name is missing"),
        (": f recurse ; f", "return stack overflow"),
        (": f begin 1 again ; f", "stack overflow"),
        (": f begin again ; f", "stopped after 100000 steps"),
        (': f begin ." ab" again ; f', "stopped after 4096 characters of output"),
        ("99999999 allot", "allot takes whole cells, 8 bytes each"),
        ("999999992 allot", "out of memory"),
    ],
)
def test_a_wrong_or_endless_program_ends_with_a_plain_error(program: str, error: str) -> None:
    assert run(program).error == error


def test_the_clock_stops_a_program_too() -> None:
    assert run(": f begin again ; f", steps=10**9, time_s=0.01).error == "stopped after 0.01 s"


def test_every_word_is_documented() -> None:
    assert DOCS.keys() == WORDS.keys() and all(doc.effect and doc.meaning for doc in DOCS.values())


def test_no_text_makes_the_machine_fail_otherwise() -> None:
    for seed in range(300):
        writer = Writer(seed)
        tokens = writer.program().split()
        writer.rng.shuffle(tokens)
        run(" ".join(tokens), steps=2000)


@pytest.mark.program("gforth")
def test_gforth_agrees_on_thousands_of_random_programs(tmp_path: Path) -> None:
    programs = [Writer(seed).program() for seed in range(4000)]
    ours = [run(program) for program in programs]
    bounded = {
        n for n, result in enumerate(ours) if "stopped" in (result.error or "") or "over" in (result.error or "")
    }
    theirs = [text for start in range(0, 4000, 1000) for text in gforth(tmp_path, programs[start : start + 1000])]
    wrong = [n for n, text in enumerate(theirs) if n not in bounded and text != seen(ours[n])]
    assert len(theirs) == 4000 and len(bounded) < 20
    assert [(programs[n], theirs[n], seen(ours[n])) for n in wrong] == []


@pytest.mark.program("gforth")
def test_gforth_agrees_on_every_wrong_program_that_it_survives(tmp_path: Path) -> None:
    programs = ["1 +", "1 0 /", "nope", "if", "5 0 mod", "drop", "1 2 rot"]
    assert gforth(tmp_path, programs) == [seen(run(program)) for program in programs]
