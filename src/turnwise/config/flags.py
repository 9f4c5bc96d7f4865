"""Command-line words in; words in one regular form, where each key came from, and mistakes out.

Regular form: `--a.b-c value`, never `--a.b_c=value`; a key inside a free table becomes JSON, with its type:
--env.args.max_steps 12  ->  --env.args {"max_steps": 12}
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from turnwise.config.keys import Key, Part, parts
from turnwise.config.nearest import nearest_key


@dataclass(slots=True)
class Flags:
    """What the words said. `files` pairs the section a file was given for ("" is the whole config) with its path."""

    settings: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    files: list[tuple[str, str]] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        """Files first: `--advantage.std @ run.toml` is a bool and a file, not a file for a bool."""
        files = [["@", path] if not section else [f"--{section}", "@", path] for section, path in self.files]
        return [word for file in files for word in file] + self.settings

    def place(self, key: str) -> str:
        """Where a key was set, as text to put behind it: " (flag)", " (run.toml)", or nothing for a default."""
        key = key.partition("[")[0]
        if any(key == g or key.startswith(f"{g}.") or g.startswith(f"{key}.") for g in self.given):
            return " (flag)"
        paths = [path for section, path in self.files if not section or f"{key}.".startswith(f"{section}.")]
        return f" ({' or '.join(paths)})" if paths else ""


def read(args: list[str], cls: type[BaseModel]) -> Flags:
    """Go through the words once, left to right."""
    known = parts(cls)
    keys = {k.name: k for p in known for k in p.keys}
    flags, i = Flags(), 0
    while i < len(args):
        word, values = args[i], _values(args, i + 1)
        if word == "@" or (_opens(word, keys) and values and values[0].startswith("@")):
            i += _file(args, i, flags)
        elif word.startswith("--"):
            i += 1 + _flag(word[2:], values, keys, known, flags)
        else:
            flags.mistakes.append(f"found {word!r} alone; expected `@ run.toml` or `--key value`")
            i += 1
    return flags


def _opens(word: str, keys: dict[str, Key]) -> bool:
    """Whether a file may follow: `--env @ env.toml`, but not `--seed=3 @ run.toml` or `--no-x.y @ run.toml`."""
    name = _name(word[2:].removeprefix("no-"))
    return word.startswith("--") and "=" not in word and (name not in keys or keys[name].container is not bool)


def _values(args: list[str], start: int) -> list[str]:
    """The words up to the next flag or, after the first, the next `@`."""
    end = start
    while end < len(args) and not args[end].startswith("--") and (end == start or args[end] != "@"):
        end += 1
    return args[start:end]


def _file(args: list[str], i: int, flags: Flags) -> int:
    """`@ run.toml`, `--env @ env.toml` or `--env @env.toml`; returns how many words that took."""
    section = args[i][2:].replace("-", "_") if args[i] != "@" else ""
    at = i if not section else i + 1
    joined = len(args[at]) > 1
    if not joined and at + 1 == len(args):
        flags.mistakes.append("found @ at the end; expected a file behind it, as in `@ run.toml`")
        return at + 1 - i
    path = args[at][1:] if joined else args[at + 1]
    if path.endswith(".toml"):
        flags.files.append((section, path))
    else:
        flags.mistakes.append(f"found config file {path}; expected a name that ends in .toml")
    return at + (1 if joined else 2) - i


def _flag(text: str, values: list[str], keys: dict[str, Key], known: list[Part], flags: Flags) -> int:
    """One flag with the words behind it; returns how many of them belong to it."""
    spelled, equals, value = text.partition("=")
    values = [value] if equals else values
    name = _name(spelled)
    key = keys.get(name)
    table = next((k for k in keys.values() if k.container is dict and name.startswith(f"{k.name}.")), None)
    if key is not None:
        used = _known(key, values, flags)
    elif table is not None:
        used = _inside(table, name, values, flags)
    elif spelled.startswith("no-") and (off := keys.get(_name(spelled[3:]))) and off.container is bool:
        flags.settings.append(f"--{spelled.replace('_', '-')}")
        flags.given.add(off.name)
        used = 0
    else:
        flags.mistakes.append(_unknown(name, known))
        used = len(values)
    return 0 if equals else used


def _name(spelled: str) -> str:
    """Flags may say row-tokens or row_tokens; keys of a free table too, since they are keyword arguments."""
    return spelled.replace("-", "_")


def _known(key: Key, values: list[str], flags: Flags) -> int:
    """A key of the config: a list takes all words, a bool none or one, anything else one."""
    if key.container is bool and values[:1] and values[0].lower() not in {"true", "false", "1", "0"}:
        values = []
    if not values and key.container not in (bool, list):
        flags.mistakes.append(f"{key.name} (flag): found no value; expected `--{key.name} {key.kind}`")
        return 0
    used = values if key.container is list else values[:1]
    if key.container in (list, dict) and used and used[0][:1] in {"[", "{"} and _json(used[0]) is None:
        flags.mistakes.append(f"{key.name} (flag): found {used[0]!r}; expected JSON, or words without brackets")
    else:
        flags.settings += [f"--{key.name.replace('_', '-')}", *_listed(key, used)]
    flags.given.add(key.name)
    return len(used)


def _listed(key: Key, words: list[str]) -> list[str]:
    """A list is handed on as one word of JSON: in a section that may be absent, its words would not be read as one."""
    return words if key.container is not list or words[:1] == [] or words[0][:1] == "[" else [json.dumps(words)]


def _inside(table: Key, name: str, values: list[str], flags: Flags) -> int:
    """A key inside a free table, which carries its own type."""
    if not values:
        flags.mistakes.append(f"{name} (flag): found no value; expected `--{name} VALUE`")
        return 0
    inner: Any = _typed(values[0])
    for word in reversed(name[len(table.name) + 1 :].split(".")):
        inner = {word: inner}
    flags.settings += [f"--{table.name.replace('_', '-')}", json.dumps(inner)]
    flags.given.add(name)
    return 1


def _typed(value: str) -> Any:
    """ "12" is 12, "true" is True, "[1, 2]" is a list; what is not JSON is text."""
    found = _json(value.lower() if value in {"True", "False"} else value)
    return value if found is None else found


def _json(value: str) -> Any:
    """The JSON value, or None where it is none."""
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return None


def _unknown(name: str, known: list[Part]) -> str:
    """What to say of a flag that names no key."""
    section = next((p for p in known if p.name == name and p.keys), None)
    if section is not None:
        return f"--{name}: found a section; expected one of its keys, such as --{section.keys[0].name}"
    meant = nearest_key(name, known)
    return f"--{name}: unknown flag" + (f"; did you mean --{meant}?" if meant else "; --help lists all")
