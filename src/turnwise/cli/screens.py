"""What `turnwise inspect` found, as a terminal shows it: a run, its breaks, a trajectory's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from turnwise.runs.axes import short
from turnwise.runs.breaks import MENDS, Broken, advice
from turnwise.types import BreakKind

if TYPE_CHECKING:
    import pyarrow as pa

WARNINGS = 6
"""The newest warnings that a summary shows; the rest stand in events.jsonl."""
WIDTH = 160
"""Columns where the output goes to no terminal."""
ROLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}
KINDS = {"sampled": "bold", "echo": "italic", "context": "dim"}
NUMBERS = {
    "sampler_logp": "sampler",
    "trainer_logp": "trainer",
    "ratio": "ratio",
    "advantage": "advantage",
    "entropy": "entropy",
    "start_logp": "start",
    "ref_logp": "reference",
    "teacher_logp": "teacher",
    "bonus": "bonus",
    "echo_alpha": "echo alpha",
    "echo_weight": "echo weight",
    "support": "support",
    "weight": "weight",
    "temperature": "temperature",
    "version": "version",
    "plain_logp": "plain",
    "plain_entropy": "plain entropy",
}
"""Columns of numbers and their titles; one that no token has is left out."""
EVEN = {"weight", "temperature", "version", "echo_weight"}
"""Columns that are told once, above the others, where all tokens that have the number have the same."""
WORDS = {"agent", "role", "tool", "kind", "token"}
"""Titles of columns of words."""
PLACES = ("step", "trajectory", "group", "sibling")
REST = {*PLACES, *WORDS, "turn", "branch", "position", "id", "text", "message", "body"}


def console() -> Console:
    """As wide as the terminal; wide where there is none."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=WIDTH)


def summary(found: Mapping[str, Any]) -> None:
    """A run on one screen."""
    run, out = found["run"], console()
    out.print(Text(f"{run['name']}", "bold"), Text(f"in {run['folder']}", "dim"))
    facts = ", ".join(f"{k} {run[k]}" for k in ("model", "env", "loss", "seed") if run[k] is not None)
    out.print(Text(f"{facts}; step {run['step']} of {run['steps']}, {run['seconds']} s"))
    for line in found["held_out"]:
        interval = f" ({line['low']:.3f} to {line['high']:.3f})" if "low" in line and "high" in line else ""
        out.print(Text(f"held-out success after step {line['step']}: {line['success']:.3f}{interval}", "green"))
    boxes = {"last step": "last", "episodes ended": "stops", "samples": "samples", "prefixes, whole run": "breaks"}
    grid = Table.grid(padding=(0, 3))
    grid.add_row(*(_box(title, found[name]) for title, name in boxes.items() if found[name]))
    out.print(grid)
    for kind in MENDS:
        if found["breaks"].get(kind.value):
            out.print(Text(advice(kind), "yellow"))
    for w in found["warnings"][-WARNINGS:]:
        out.print(Text(f"{w['kind']}: {w['text']}" + (f" ({w['times']} times)" if w["times"] > 1 else ""), "red"))


def _box(title: str, numbers: Mapping[str, float]) -> Table:
    table = Table(title=Text(title, "bold"), box=None, show_header=False, padding=(0, 1), title_justify="left")
    for name, value in numbers.items():
        table.add_row(Text(name, "dim"), Text(short(value)))
    return table


def breaks(found: Sequence[Broken], counts: Mapping[str, int], limit: int) -> None:
    """Counts by kind with what to do, then each break with the old and the new text."""
    out, total = console(), sum(counts.values())
    if not total:
        out.print("no turn had anything to continue")
        return
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("prefix", "turns", "share"):
        table.add_column(title, justify="left" if title == "prefix" else "right")
    for kind, n in counts.items():
        table.add_row(kind, str(n), f"{n / total:.1%}", style="" if n else "dim")
    out.print(table)
    for kind in (kind for kind in MENDS if counts[kind]):
        out.print(Text(advice(kind), "yellow"))
    for b in found[:limit]:
        out.print(_broken(b))
    if len(found) > limit:
        out.print(Text(f"{len(found) - limit} more; show them with --limit {len(found)}", "dim"))


def _broken(b: Broken) -> Group:
    at = f"at token {b.prefix.at}, where it leaves turn {b.prefix.turn}"
    head = f"step {b.step}, trajectory {b.trajectory}, turn {b.turn} ({b.agent}): {b.prefix.kind} {at}"
    texts = b.prefix.old, b.prefix.new
    same = next((n for n, (x, y) in enumerate(zip(*texts, strict=False)) if x != y), min(map(len, texts)))
    if b.prefix.kind is BreakKind.COMPACTED:
        return Group(Text(head, "bold"))
    old, new = _unlike("old", b.prefix.old, same, "red"), _unlike("new", b.prefix.new, same, "green")
    return Group(Text(head, "bold"), old, new)


def _unlike(name: str, text: str, same: int, style: str) -> Text:
    """One line: what both texts begin with, a mark, and what only this one goes on with."""
    return Text.assemble((f"  {name} ", "dim"), (_line(text[:same]), "dim"), ("»", "bold"), (_line(text[same:]), style))


def _line(text: str) -> str:
    return text.replace("\n", "⏎").replace("\t", "⇥")


def plain(b: Broken) -> dict[str, Any]:
    """A break as JSON has it."""
    return asdict(b)


def tokens(table: pa.Table) -> None:
    """A line a token, in the order of branches; sampled tokens are bold, context is dim, roles have colours."""
    if not len(table):
        console().print("no tokens: the episode ended before its first turn")
        return
    columns = {name: table[name].to_pylist() for name in table.column_names}
    held, even = _numbers(columns)
    cells = {
        "position": list(map(str, columns["position"])),
        "turn": list(map(str, columns["turn"])),
        "branch": list(map(str, columns["branch"])),
        **({"agent": columns["agent"]} if len(set(columns["agent"])) > 1 else {}),
        **{name: [v or "" for v in columns[name]] for name in ("role", "tool", "kind")},
        "token": [_shown(i, text) for i, text in zip(columns["id"], columns["text"], strict=True)],
        **{title: [_number(v) for v in columns[name]] for name, title in held.items()},
    }
    written = zip(columns["kind"], columns["role"], strict=True)
    lines = _aligned(cells, [(KINDS[kind], ROLES.get(role or "", "")) for kind, role in written])
    about = {name: columns[name][0] for name in PLACES} | even
    head = Text(", ".join(f"{name} {_number(value)}" for name, value in about.items()), "bold")
    console().print(head, Text("\n").join(lines), sep="\n", soft_wrap=True)


def _numbers(columns: Mapping[str, list[Any]]) -> tuple[dict[str, str], dict[str, Any]]:
    """Titles of the columns of numbers that are worth one, and the numbers that are the same for all tokens.

    Log-probabilities at temperature 1 are the others once more where every token was sampled at 1.
    """
    marks = {name: name.replace("_", " ") for name in columns if name not in REST | NUMBERS.keys()}
    titles = {**NUMBERS, **marks}
    values = {name: {v for v in columns.get(name, []) if v is not None} for name in titles}
    again = {"plain_logp", "plain_entropy"} if values["temperature"] <= {1.0} else set()
    even = {name: values[name] for name in EVEN if len(values[name]) == 1}
    held = {name: title for name, title in titles.items() if values[name] and name not in even.keys() | again}
    return held, {titles[name]: next(iter(one)) for name, one in sorted(even.items())}


def _aligned(cells: Mapping[str, list[str]], styles: Sequence[tuple[str, str]]) -> list[Text]:
    """A heading and a line a token: words on the left, numbers on the right; `styles` are of the line, of its words."""
    lines = [Text(style="dim"), *(Text(style=line) for line, _ in styles)]
    for title, values in cells.items():
        width = max(map(cell_len, (title, *values)))
        for line, value, (_, colour) in zip(lines, (title, *values), (("", ""), *styles), strict=True):
            space = " " * (width - cell_len(value))
            word = title in WORDS
            line.append(value + space if word else space + value, colour if word else "").append("  ")
    return lines


def _shown(token: int, text: str | None) -> str:
    """The text with its blanks visible, the number where the text is not known."""
    return str(token) if text is None else repr(text)[1:-1].replace(" ", "␣")


def _number(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value + 0.0:.4g}"
