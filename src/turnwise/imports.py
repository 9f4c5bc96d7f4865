"""A place such as `package.module:name` or `file.py:name` to what stands there."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from turnwise.errors import ConfigError


def function(path: str, key: str) -> Callable[..., Any]:
    """The function a config names: function("my_pkg.filters:skip", "env.echo.filter.import_path")."""
    place, _, name = path.rpartition(":")
    expected = f"name {key} as 'package.module:function' or 'file.py:function'"
    if not place:
        raise ConfigError(f"found {path!r}; {expected}")
    found = getattr(module(place, expected), name, None)
    if not callable(found):
        names = [n for n, member in vars(module(place, expected)).items() if inspect.isfunction(member)]
        raise ConfigError(f"found no function {name!r} in {place}; it holds {sorted(names)}{nearest(name, names)}")
    called: Callable[..., Any] = found
    return called


def module(place: str, expected: str) -> ModuleType:
    """A module by its dotted name, or a file that ends in .py; `expected` says how such a place is written."""
    return _from_file(place) if place.endswith(".py") else _from_package(place, expected)


def nearest(word: str, words: Iterable[str]) -> str:
    """ " (did you mean 'x'?)", or nothing where none is near."""
    near = get_close_matches(word, words, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _from_package(place: str, expected: str) -> ModuleType:
    """Import a module; a module that exists but fails to import fails with its own error."""
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"found no module {error.name!r} for {place!r}; expected an importable one: {expected}"
        ) from error


def _from_file(place: str) -> ModuleType:
    """Import a file once, under a name made from its whole path, so that a class found twice is the same class."""
    path = Path(place).resolve()
    if not path.is_file():
        raise ConfigError(f"found no file {path}; expected a path relative to the working directory {Path.cwd()}")
    name = f"{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[name]
        raise
    return made
