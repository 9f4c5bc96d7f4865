"""What pydantic found wrong in, one line a mistake out: which key, where it was set, what was found and expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from turnwise.config.keys import Part, models_in, parts, tag_of
from turnwise.config.nearest import nearest_key, nearest_word, owner

EXPECTED = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "literal_error": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "too_short": "at least {min_length} values",
    "too_long": "at most {max_length} values",
    "missing": "a value",
    "finite_number": "a finite number",
}
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "dict": "a table",
    "model": "a table",
}


def describe(error: ValidationError, cls: type[BaseModel], place: Callable[[str], str]) -> list[str]:
    """One line a mistake; `place` says in brackets where a key was set."""
    known = parts(cls)
    lines: list[str] = []
    for found in error.errors():
        key, tag = dotted(cls, found["loc"])
        key += ".type" if found["type"] == "union_tag_invalid" else ""
        if found["type"] == "extra_forbidden":
            lines += [f"{k}{place(k)}: {_unknown(k, known, tag)}" for k in _leaves(key, found["input"])]
        else:
            lines.append(f"{key}{place(key)}: {_wrong(found)}" if key else _wrong(found))
    return lines


def dotted(cls: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, str | None]:
    """pydantic's path as a key and the tag it passed: ("loss", "grpo", "high") is ("loss.high", "grpo")."""
    key, models, tag = "", [cls], None
    for part in loc:
        if len(models) > 1:
            models, tag = [m for m in models if tag_of(m) == part], str(part)
            continue
        key = f"{key}[{part}]" if isinstance(part, int) else f"{key}.{part}" if key else part
        field = models[0].model_fields.get(str(part)) if models else None
        models = models_in(field.annotation) if field else []
    return key, tag


def _leaves(key: str, value: Any) -> Iterator[str]:
    """The keys inside an unknown table, since one of them was meant: trian = {lr = 1} gives trian.lr."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key


def _unknown(key: str, known: list[Part], tag: str | None) -> str:
    of = owner(key, known)
    if of is not None and tag is not None:
        return f'unknown key for type "{tag}"; it belongs to type "{of}"'
    meant = nearest_key(key, known, tag)
    return "unknown key" + (f"; did you mean {meant}?" if meant else "; docs/config.md lists all")


def _wrong(found: Mapping[str, Any]) -> str:
    """Found and expected, in words; a check of our own has said both already."""
    context = found.get("ctx", {})
    if found["type"] == "value_error":
        return str(context["error"])
    value = found["input"]
    if found["type"] == "union_tag_invalid":
        value = context["tag"]
    shown = "a table" if isinstance(value, dict) else repr(value)
    return f"found {shown}; expected {_expected(found['type'], context) or found['msg']}{_hint(value, context)}"


def _expected(kind: str, context: Mapping[str, Any]) -> str | None:
    if kind in EXPECTED:
        return EXPECTED[kind].format(**context)
    return KINDS.get(kind.partition("_")[0])


def _hint(value: Any, context: Mapping[str, Any]) -> str:
    """The choice that a misspelt one was meant to be."""
    choices = context.get("expected", context.get("expected_tags", ""))
    words = [w.strip(" '") for w in str(choices).replace(" or ", ",").split(",")]
    meant = nearest_word(value, words) if isinstance(value, str) else None
    return f"; did you mean {meant!r}?" if meant else ""
