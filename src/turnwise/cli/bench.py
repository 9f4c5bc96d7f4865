"""`turnwise bench NAME --key value --json PATH`: parse and check first, import torch after."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path

from turnwise.cli.json_path import json_path
from turnwise.cli.page import page, show
from turnwise.config import load
from turnwise.config.nearest import nearest_word
from turnwise.errors import ConfigError

BENCHES = {
    "trees": "turns to packed rows: tokens forwarded and trained, as trees, one sample a turn, and cut at every break",
    "rows": "attention over packed rows beside a dense mask, forward and backward",
    "step": "an optimizer step on histories that break: packed trees, and cut at every break; the same gradient",
    "train": "an optimizer step on recorded rollouts: packed trees, one sample a turn, and TRL",
    "episodes": "the turn loop by itself: episodes a second against an engine that answers at once",
    "engine": "sampling: the built-in engine, transformers' generate, and a vLLM server; alone, batched, over turns",
    "load": "many conversations against a real server, with clients that cancel, hang up and read slowly",
    "compaction": "what compacting the cache of a model costs, in quality and in time",
}
"""Name to its line of help. The module turnwise.bench.NAME holds `Options`, `run(options, say) -> cases` and
`view(cases)`, the same for the terminal."""
SHARED = {"--json PATH": "also write command, commit, machine and every figure to a file"}


def run(args: list[str]) -> int:
    """Parse, check, then measure."""
    if not args or args[0] in {"-h", "--help"}:
        show(usage())
        return 0 if args else 2
    name = args[0]
    if name not in BENCHES:
        meant = nearest_word(name, BENCHES)
        hint = f"; did you mean {meant}?" if meant else ""
        raise ConfigError(f"found benchmark {name!r}; expected one of {', '.join(BENCHES)}{hint}")
    module = import_module(f"turnwise.bench.{name}")
    if {"-h", "--help"} & set(args):
        show(page(f"turnwise bench {name} [--key value ...]", module.__doc__ or "", SHARED, module.Options))
        return 0
    path, rest = json_path(args[1:])
    _measure(name, load(rest, module.Options), path, shlex.join(["turnwise", "bench", *args]))
    return 0


def usage() -> str:
    """The page behind `turnwise bench --help`."""
    width = max(map(len, BENCHES))
    lines = [f"  {name:<{width}}  {text}" for name, text in BENCHES.items()]
    return "\n".join(
        [
            "usage: turnwise bench NAME [--key value ...] [--json PATH]",
            "",
            *lines,
            "",
            "`turnwise bench NAME --help` lists the keys of one.",
        ]
    )


def _measure(name: str, options: object, path: Path | None, command: str) -> None:
    """Progress goes to stderr, the table to stdout."""
    import sys

    from rich.console import Console

    from turnwise.bench.report import table, write

    module = import_module(f"turnwise.bench.{name}")
    cases = module.run(options, lambda line: print(line, file=sys.stderr, flush=True))
    Console().print(table(module.view(cases)))
    if path is not None:
        write(path, command, cases)
