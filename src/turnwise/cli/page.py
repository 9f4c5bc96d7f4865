"""A command's help page from its config class: options first, then every key with its type, meaning and default."""

from __future__ import annotations

import shutil
import signal
import textwrap
from collections.abc import Mapping

from pydantic import BaseModel

from turnwise.config.keys import Key, Part, parts

NAME_WIDTH = 34


def show(text: str) -> None:
    """Print a page; a reader that has seen enough (`| head`) ends the program without a word."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print(text, flush=True)
    signal.signal(signal.SIGPIPE, before)


def page(usage: str, about: str, options: Mapping[str, str], cls: type[BaseModel]) -> str:
    """The whole page, wrapped to the terminal but never wider than 120."""
    width = min(shutil.get_terminal_size().columns, 120)
    head = [f"usage: {usage}", "", *textwrap.wrap(" ".join(about.split()), width)]
    body = [line for name, text in options.items() for line in _entry(name, text, width)]
    body = ["", *body] if body else []
    for part in parts(cls):
        body += ["", *textwrap.wrap(_title(part), width), *(line for key in part.keys for line in _key(key, width))]
    return "\n".join(head + body)


def _title(part: Part) -> str:
    about = part.text.splitlines()[0]
    return f"[{part.name}]{part.choice}: {about}" if part.name else about


def _key(key: Key, width: int) -> list[str]:
    default = "" if key.default in ([], {}, "") else f" [{_word(key.default)}]"
    return _entry(f"--{key.name} {key.kind}", f"{key.text}{default}", width)


def _word(value: object) -> str:
    """A default as one would type it: [0.9, 0.999] is 0.9 0.999."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _entry(name: str, text: str, width: int) -> list[str]:
    """Name on the left, text wrapped on the right; a name too long for its column gets a line of its own."""
    lines = textwrap.wrap(text, max(width - NAME_WIDTH - 4, 30)) or [""]
    first = [f"  {name:<{NAME_WIDTH}}  {lines[0]}"] if len(name) <= NAME_WIDTH else [f"  {name}", _right(lines[0])]
    return first + [_right(line) for line in lines[1:]]


def _right(text: str) -> str:
    return " " * (NAME_WIDTH + 4) + text
