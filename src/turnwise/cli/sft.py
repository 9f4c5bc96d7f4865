"""`turnwise sft @ run.toml --a.b value`: parse and check first, import torch after."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from turnwise.cli.page import page, show
from turnwise.cli.train import OPTIONS, check_folder
from turnwise.config import dump, load
from turnwise.config.sft import SftRunConfig
from turnwise.errors import ConfigError

USAGE = "turnwise sft [@ sft.toml] --data demos/data.jsonl [--key value ...]"
ABOUT = """Trains a model on conversations, one JSON object a line in OpenAI shape (messages, tools, metadata): what
the assistant says is learnt, everything else is read. Trees, rows, checkpoints and resuming are those of `turnwise
train`, and a checkpoint is a model for it: `turnwise train --model runs/sft/checkpoints/step-000100`."""


def run(args: list[str]) -> int:
    """Parse, check, then train."""
    if {"-h", "--help"} & set(args):
        show(page(USAGE, ABOUT, OPTIONS, SftRunConfig))
        return 0
    chosen = OPTIONS.keys() & set(args)
    config = load([a for a in args if a not in OPTIONS], SftRunConfig)
    if "--dry-run" in chosen:
        show(dump(config).rstrip("\n"))
        return 0
    check_folder(Path(config.out) / config.name, resume="--resume" in chosen)
    for file in config.data:
        if not Path(file).is_file():
            raise ConfigError(f"found no file {file} (data); expected conversations, one JSON object a line")
    return _warm(config, resume="--resume" in chosen, quiet="--quiet" in chosen)


def _warm(config: SftRunConfig, *, resume: bool, quiet: bool) -> int:
    """Everything from here on may import torch."""
    from turnwise.cli.columns import LEARNT
    from turnwise.cli.interrupt import stoppable
    from turnwise.cli.live import reporter
    from turnwise.sft import warm

    with (
        closing(reporter(quiet=quiet, terminal=sys.stdout.isatty(), columns=LEARNT)) as told,
        stoppable(told.note) as stop,
    ):
        warm(config, told, resume=resume, stop=stop)
    return 0
