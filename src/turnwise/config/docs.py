"""docs/config.md from a config class: one table a section. `python -m turnwise.config.docs > docs/config.md`."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from turnwise.config.keys import Key, Part, parts
from turnwise.config.run import RunConfig

HEAD = """# Config

Made from the config classes by `python -m turnwise.config.docs > docs/config.md`.

Every key below can stand in a TOML file or be a flag, and flags win:

    turnwise train @ run.toml --train.lr 1e-4 --env.sampling.choices yes no --env.args.level BabyAI-GoToObj-v0

`--env @ env.toml` reads one section from a file of its own. `--dry-run` prints the complete config that results."""


def document(cls: type[BaseModel] = RunConfig) -> str:
    """The whole page, as Markdown."""
    return "\n\n".join([HEAD, *(_section(part) for part in parts(cls))]) + "\n"


def _section(part: Part) -> str:
    name = f"`[{part.name}]`" if part.name else "Top level"
    rows = [f"| `{_short(part, key)}` | {_default(key)} | {_cell(key.text)} |" for key in part.keys]
    return "\n".join(
        [f"## {name}{part.choice}", "", part.text, "", "| key | default | meaning |", "|---|---|---|", *rows]
    )


def _short(part: Part, key: Key) -> str:
    """The key as it stands in its section: train.lr is lr under [train]."""
    return key.name[len(part.name) + 1 :] if part.name else key.name


def _default(key: Key) -> str:
    """As TOML writes it."""
    if key.default is PydanticUndefined:
        return "needed"
    shown = str(key.default).lower() if isinstance(key.default, bool) else repr(key.default).replace("'", '"')
    return f"`{shown}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(document(), end="")
