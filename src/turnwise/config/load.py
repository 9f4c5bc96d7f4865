"""Words such as `@ run.toml --train.lr 1e-3` in, a validated config out; and a config back to complete TOML.

load(["@", path]) of a dump gives an equal config.
"""

from __future__ import annotations

from collections.abc import Sequence
from json import JSONDecodeError
from typing import Any, TypeVar, overload

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic_config import cli
from pydantic_config.cli import ConfigFileError

from turnwise.config.flags import Flags, read
from turnwise.config.mistakes import describe
from turnwise.config.run import RunConfig
from turnwise.errors import ConfigError

Config = TypeVar("Config", bound=BaseModel)


@overload
def load(args: Sequence[str]) -> RunConfig: ...
@overload
def load(args: Sequence[str], cls: type[Config]) -> Config: ...
def load(args: Sequence[str], cls: type[BaseModel] = RunConfig) -> BaseModel:
    """Files first, flags over them, then one check of the whole; every mistake is named in one ConfigError."""
    flags = read(list(args), cls)
    config, cause, found = _validate(flags, cls)
    mistakes = flags.mistakes + found
    if config is None or mistakes:
        raise ConfigError(_message(mistakes)) from cause
    return config


def dump(config: BaseModel) -> str:
    """The complete config as TOML, defaults included."""
    return tomli_w.dumps(_plain(config.model_dump()))


def _validate(flags: Flags, cls: type[BaseModel]) -> tuple[BaseModel | None, Exception | None, list[str]]:
    """The config, or what was wrong with files and values."""
    try:
        return cli(cls, args=flags.words), None, []
    except ConfigFileError as error:
        if isinstance(error.__cause__, ValidationError):
            return None, error, describe(error.__cause__, cls, flags.place)
        return None, error, [error.message]
    except JSONDecodeError as error:
        return (
            None,
            error,
            [f"found {error.doc!r}; expected JSON where a flag's value begins with a brace or a bracket"],
        )
    except (OSError, UnicodeDecodeError) as error:
        return None, error, [f"cannot read a config file: {error}"]


def _message(mistakes: list[str]) -> str:
    count = f"{len(mistakes)} mistakes" if len(mistakes) > 1 else "a mistake"
    return "\n".join([f"{count} in the config:", *(f"  {m}" for m in mistakes)])


def _plain(value: Any) -> Any:
    """What TOML can write: null becomes the text "None", which a config reads back as null."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return "None" if value is None else value
