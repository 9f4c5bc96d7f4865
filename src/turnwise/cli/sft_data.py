"""`turnwise sft-data --env.id forth --source engine --out demos`: parse and check first, import torch after."""

from __future__ import annotations

import sys
from contextlib import closing

from turnwise.cli.page import page, show
from turnwise.config import dump, load
from turnwise.config.sft import SftDataConfig

OPTIONS = {
    "--dry-run": "print the complete config as TOML and stop",
    "--quiet": "print only the last line",
}
USAGE = "turnwise sft-data [@ demos.toml] [--env.id ID] [--source engine|endpoint|expert] [--key value ...]"
ABOUT = """Plays episodes and keeps those over a reward as conversations for `turnwise sft`: one JSON object a line in
OpenAI shape, in `out`/data.jsonl. Repeat the command to go on where it was interrupted; finished episodes are not
played again. Ctrl-C lets the episodes under way finish."""


def run(args: list[str]) -> int:
    """Parse, check, then play."""
    if {"-h", "--help"} & set(args):
        show(page(USAGE, ABOUT, OPTIONS, SftDataConfig))
        return 0
    chosen = OPTIONS.keys() & set(args)
    config = load([a for a in args if a not in OPTIONS], SftDataConfig)
    if "--dry-run" in chosen:
        show(dump(config).rstrip("\n"))
        return 0
    return _gather(config, quiet="--quiet" in chosen)


def _gather(config: SftDataConfig, *, quiet: bool) -> int:
    """Everything from here on may import torch."""
    from turnwise.cli.interrupt import stoppable
    from turnwise.cli.live import reporter
    from turnwise.sft import gather

    with closing(reporter(quiet=quiet, terminal=sys.stdout.isatty())) as told, stoppable(told.note, SOON) as stop:
        gather(config, told, stop=stop)
    return 0


SOON = "finishing the episodes under way; Ctrl-C again to stop at once"
