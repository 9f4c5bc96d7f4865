"""Words that act while a definition is compiled: branches, loops, definitions, text.

`machine.open` holds what is not closed yet, innermost last, each as its kind and the places to come back to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.envs.forth.machine import (
    CELL,
    ORIGIN,
    ForthError,
    Loop,
    Machine,
    Word,
    call,
    leave_word,
    push,
    wrap,
)

UNSET = -1


def _branch(m: Machine, target: int) -> None:
    m.at = target


def _branch_if_zero(m: Machine, target: int) -> None:
    if m.pop(1)[0] == 0:
        m.at = target


def _do(m: Machine, _: Any) -> None:
    limit, index = m.pop(2)
    m.keep(Loop(index, limit))


def _do_unless_equal(m: Machine, target: int) -> None:
    limit, index = m.pop(2)
    if limit == index:
        m.at = target
    else:
        m.keep(Loop(index, limit))


def _again(m: Machine, step: int, start: int) -> None:
    """Go round unless the index crosses the border between limit - 1 and limit, in either direction."""
    loop: Loop = m.kept(Loop)
    before = wrap(loop.index - loop.limit)
    after = before + step
    loop.index = wrap(loop.index + step)
    if before < 0 <= after or after < 0 <= before:
        m.returns.pop()
    else:
        m.at = start


def _loop(m: Machine, start: int) -> None:
    _again(m, 1, start)


def _plus_loop(m: Machine, start: int) -> None:
    _again(m, m.pop(1)[0], start)


def _leave(m: Machine, target: int) -> None:
    m.kept(Loop)
    m.returns.pop()
    m.at = target


def _hole(m: Machine, step: Callable[[Machine, Any], None]) -> int:
    """A step whose target is not known yet."""
    m.emit_code(step, UNSET)
    assert m.defining is not None
    return len(m.defining.code) - 1


def _fill(m: Machine, hole: int) -> None:
    """Have a step go to what is compiled next."""
    assert m.defining is not None
    m.defining.code[hole] = (m.defining.code[hole][0], len(m.defining.code))


def _here(m: Machine) -> int:
    if m.defining is None:
        raise ForthError("this word may stand in a definition only")
    return len(m.defining.code)


def _close(m: Machine, *kinds: str) -> tuple[str, Any]:
    """The innermost open structure, which has to be of one of these kinds."""
    _here(m)
    if not m.open or m.open[-1][0] not in kinds:
        raise ForthError("unstructured: this does not close what was opened last")
    found: tuple[str, Any] = m.open.pop()
    return found


def _if(m: Machine) -> None:
    m.open.append(("if", _hole(m, _branch_if_zero)))


def _else(m: Machine) -> None:
    _, hole = _close(m, "if")
    m.open.append(("if", _hole(m, _branch)))
    _fill(m, hole)


def _then(m: Machine) -> None:
    _fill(m, _close(m, "if")[1])


def _begin(m: Machine) -> None:
    m.open.append(("begin", _here(m)))


def _until(m: Machine) -> None:
    m.emit_code(_branch_if_zero, _close(m, "begin")[1])


def _forever(m: Machine) -> None:
    m.emit_code(_branch, _close(m, "begin")[1])


def _while(m: Machine) -> None:
    start = _close(m, "begin")[1]
    m.open.append(("while", (start, _hole(m, _branch_if_zero))))


def _repeat(m: Machine) -> None:
    start, hole = _close(m, "while")[1]
    m.emit_code(_branch, start)
    _fill(m, hole)


def _open_do(m: Machine) -> None:
    m.emit_code(_do)
    m.open.append(("do", (_here(m), [])))


def _open_question_do(m: Machine) -> None:
    hole = _hole(m, _do_unless_equal)
    m.open.append(("do", (_here(m), [hole])))


def _close_do(step: Callable[[Machine, Any], None]) -> Callable[[Machine], None]:
    def close(m: Machine) -> None:
        start, holes = _close(m, "do")[1]
        m.emit_code(step, start)
        for hole in holes:
            _fill(m, hole)

    return close


def _compile_leave(m: Machine) -> None:
    _here(m)
    loops = [held for kind, held in m.open if kind == "do"]
    if not loops:
        raise ForthError("leave stands in no loop")
    loops[-1][1].append(_hole(m, _leave))


def _define(m: Machine) -> None:
    if m.defining:
        raise ForthError("a definition within a definition")
    m.defining, m.open = Word(m.name()), []


def _end_definition(m: Machine) -> None:
    _here(m)
    assert m.defining is not None
    if m.open:
        raise ForthError(f"unstructured: {m.open[-1][0]} is not closed")
    m.emit_code(leave_word)
    m.words[m.defining.name] = m.defining
    m.defining = None


def _recurse(m: Machine) -> None:
    m.emit_code(call, m.defining)


def _outside(m: Machine) -> None:
    if m.defining:
        raise ForthError("this word defines a name, and stands outside of definitions")


def _constant(m: Machine) -> None:
    _outside(m)
    (number,) = m.pop(1)
    name = m.name()
    m.words[name] = Word(name, code=[(push, number), (leave_word, None)])


def _create(m: Machine) -> None:
    _outside(m)
    name = m.name()
    m.words[name] = Word(name, code=[(push, ORIGIN + CELL * len(m.memory)), (leave_word, None)])


def _variable(m: Machine) -> None:
    _create(m)
    m.allot(1)


def _text(m: Machine) -> None:
    said = m.parse('"')
    if m.defining:
        m.emit_code(lambda machine, text: machine.print(text), said)
    else:
        m.print(said)


def _char(m: Machine) -> None:
    name = m.next_word()
    if not name:
        raise ForthError("a name is missing")
    m.push(ord(name[0]))


def _char_inside(m: Machine) -> None:
    _here(m)
    name = m.next_word()
    if not name:
        raise ForthError("a name is missing")
    m.literal(ord(name[0]))


def _round_comment(m: Machine) -> None:
    m.parse(")")


def _line_comment(m: Machine) -> None:
    m.parse("\n")


CONTROL: dict[str, tuple[str, str, Callable[[Machine], None]]] = {
    ":": ("--", "starts a definition: `: square dup * ;`", _define),
    ";": ("--", "ends a definition", _end_definition),
    "if": ("flag --", "goes on after else, or then, if the flag is zero", _if),
    "else": ("--", "what is done if the flag was zero, up to then", _else),
    "then": ("--", "ends if", _then),
    "begin": ("--", "where until, again and repeat go back to", _begin),
    "until": ("flag --", "goes back to begin if the flag is zero", _until),
    "again": ("--", "goes back to begin", _forever),
    "while": ("flag --", "leaves the loop after repeat if the flag is zero", _while),
    "repeat": ("--", "goes back to begin", _repeat),
    "do": ("limit start --", "counts from start up to limit, at least once", _open_do),
    "?do": ("limit start --", "like do, but not at all if the two are equal", _open_question_do),
    "loop": ("--", "adds one to the index; goes back to do until the limit is reached", _close_do(_loop)),
    "+loop": ("n --", "adds n to the index; goes back to do until the limit is crossed", _close_do(_plus_loop)),
    "leave": ("--", "leaves the loop at once", _compile_leave),
    "exit": ("--", "leaves the definition at once", lambda m: m.emit_code(leave_word)),
    "recurse": ("--", "calls the definition it stands in", _recurse),
    "variable": ("--", "names a cell: `variable x`", _variable),
    "constant": ("n --", "names a number: `7 constant seven`", _constant),
    "create": ("--", "names the next cell: `create list 1 , 2 ,`", _create),
    '."': ("--", 'prints the text up to the next "', _text),
    "(": ("--", "a comment, up to )", _round_comment),
    "\\": ("--", "a comment, up to the end of the line", _line_comment),
    "char": ("-- c", "the number of the character that comes next", _char),
    "[char]": ("-- c", "like char, inside a definition", _char_inside),
}
"""Name, stack effect, meaning, and what it does when it is met in the text."""
