"""A config class in, its sections and keys out: full name, type, default and meaning.

Help, docs and "did you mean" read this. The meaning is the string under a field, taken from the source file.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

NAMES: dict[Any, str] = {bool: "true|false", int: "INT", float: "NUMBER", str: "TEXT", dict: "TABLE"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key that can be set; `name` is dotted, as in a flag: "train.lr"."""

    name: str
    type: Any
    default: Any
    text: str

    @property
    def kind(self) -> str:
        return kind(self.type)

    @property
    def container(self) -> Any:
        """list, dict, bool or None: how its flag reads the words after it."""
        inside = [i for i in _options(self.type) if i is not type(None)]
        plain = get_origin(inside[0]) or inside[0] if len(inside) == 1 else None
        return plain if plain in (list, dict, bool) else None


@dataclass(frozen=True, slots=True)
class Part:
    """One section; `tag` is set where `type` chooses among several, of which one is the `usual`."""

    name: str
    tag: str | None
    usual: bool
    text: str
    keys: tuple[Key, ...]

    @property
    def choice(self) -> str:
        """What to say of the tag: ` with type = "grpo"`."""
        return f' with type = "{self.tag}"{", the default" if self.usual else ""}' if self.tag else ""


def parts(cls: type[BaseModel], name: str = "", tag: str | None = None, usual: bool = True) -> list[Part]:
    """A class and everything below it, outermost first: "", "tiny", "env", "env.sampling", ..."""
    texts = meanings(cls)
    own, below = [], []
    for field, info in cls.model_fields.items():
        full = f"{name}.{field}" if name else field
        models = models_in(info.annotation)
        if not models:
            own.append(Key(full, info.annotation, _default(info), texts.get(field, "")))
        for model in models:
            chosen = isinstance(_default(info), model)
            below += parts(model, full, tag_of(model) if len(models) > 1 else None, chosen)
    return [Part(name, tag, usual, inspect.cleandoc(cls.__doc__ or ""), tuple(own)), *below]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The config classes a field may hold: none for a plain value, several for a tagged choice."""
    return [o for o in _options(annotation) if isinstance(o, type) and issubclass(o, BaseModel)]


def _options(annotation: Any) -> tuple[Any, ...]:
    """What a union offers; anything else is its only option."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def tag_of(model: type[BaseModel]) -> str:
    """The `type` that chooses this class."""
    return str(model.model_fields["type"].default)


def kind(annotation: Any) -> str:
    """A type as help shows it: Literal["a", "b"] is "a|b", list[str] is "TEXT ..."."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "|".join(map(str, inside))
    if origin is list:
        return f"{kind(inside[0])} ..."
    if origin in (Union, types.UnionType):
        return "|".join(kind(i) for i in inside if i is not type(None))
    if hasattr(annotation, "__metadata__"):
        return kind(inside[0])
    return NAMES.get(origin or annotation, getattr(annotation, "__name__", "VALUE").upper())


def meanings(cls: type[BaseModel]) -> dict[str, str]:
    """Field to the string that stands under it; a subclass's own text wins."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, BaseModel):
            found |= _texts(base.__module__).get(base.__name__, {})
    return found


@lru_cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    """Class to field to text for one file, read once."""
    if module.partition(".")[0] in {"pydantic", "pydantic_config"}:
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: _under(node.body) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _under(body: list[ast.stmt]) -> dict[str, str]:
    """Each annotated name that a string literal follows, with that string."""
    found = {}
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found


def _default(info: FieldInfo) -> Any:
    return info.get_default(call_default_factory=True, validated_data={})
