"""`turnwise COMMAND ...`: finds the command, runs it, and turns errors meant for the user into plain text.

Exit codes: 0 done, 1 the run could not go on, 2 the config or the command line is wrong, 130 stopped by Ctrl-C.
A bug is no such error and keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from turnwise import __version__
from turnwise.errors import ConfigError, TurnwiseError

COMMANDS = {
    "train": "train a model: play episodes, learn from them, save checkpoints",
    "sft": "train a model on conversations: a warm start",
    "sft-data": "gather such conversations from episodes",
    "new": "write a working environment to start from",
    "inspect": "a run in the terminal: its numbers, why prefixes broke, its tokens",
    "doctor": "is sampling and training of a model exact?",
    "serve": "a server over a model: tokens, OpenAI's routes, sessions, compaction",
    "chat": "talk to a model, or to a server, in the terminal",
    "bench": "measure side by side with peers",
}
"""Command to its line of help. The module turnwise.cli.COMMAND holds `run(args) -> exit code`."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if args is None else args)
    if not words or words[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0 if words else 2
    if words[0] in {"-V", "--version"}:
        print(f"turnwise {__version__}")
        return 0
    if words[0] not in COMMANDS:
        print(_unknown(words[0]), file=sys.stderr)
        return 2
    try:
        code: int = import_module(f"turnwise.cli.{words[0].replace('-', '_')}").run(words[1:])
        return code
    except TurnwiseError as error:
        print(f"turnwise {words[0]}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def usage() -> str:
    """The page behind `turnwise --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "Turnwise trains language-model agents by reinforcement learning over many turns.",
            "",
            "usage: turnwise COMMAND ...",
            "",
            *lines,
            "",
            "`turnwise COMMAND --help` says more; `turnwise --version` says which version this is.",
        ]
    )


def _unknown(command: str) -> str:
    from difflib import get_close_matches

    meant = get_close_matches(command, COMMANDS, n=1)
    hint = f"; did you mean {meant[0]}?" if meant else ""
    return f"turnwise: found command {command!r}; expected one of {', '.join(COMMANDS)}{hint}"


if __name__ == "__main__":
    sys.exit(main())
