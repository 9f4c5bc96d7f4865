"""`turnwise train @ run.toml --a.b value`: parse and check first, import torch after."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from turnwise.cli.page import page, show
from turnwise.config import RunConfig, dump, load
from turnwise.errors import RunError

OPTIONS = {
    "--dry-run": "print the complete config as TOML and stop",
    "--resume": "go on with the run of this name from its last checkpoint",
    "--quiet": "print only the last line",
}
USAGE = "turnwise train [@ run.toml] [--key value ...]"
ABOUT = """Plays episodes, learns from them and saves checkpoints into `out`/`name`. Every key below can stand in the
TOML or be a flag, and flags win: `turnwise train @ run.toml --train.lr 1e-4`. `--env @ env.toml` reads one section
from a file. Lists take several words; Ctrl-C finishes the step and saves."""


def run(args: list[str]) -> int:
    """Parse, check, then train."""
    if {"-h", "--help"} & set(args):
        show(page(USAGE, ABOUT, OPTIONS, RunConfig))
        return 0
    chosen = OPTIONS.keys() & set(args)
    config = load([a for a in args if a not in OPTIONS])
    if "--dry-run" in chosen:
        show(dump(config).rstrip("\n"))
        return 0
    check_folder(Path(config.out) / config.name, resume="--resume" in chosen)
    return _train(config, resume="--resume" in chosen, quiet="--quiet" in chosen)


def check_folder(folder: Path, *, resume: bool) -> None:
    """A new run wants a folder that holds none yet, a resumed one wants a folder that holds one."""
    holds = (folder / "config.toml").exists()
    if holds and not resume:
        raise RunError(
            f"found a run in {folder}; expected none: add --resume to go on with it, or choose another --name"
        )
    if resume and not holds:
        raise RunError(f"found no run in {folder}; expected one to resume: leave out --resume, or check --name, --out")


def _train(config: RunConfig, *, resume: bool, quiet: bool) -> int:
    """Everything from here on may import torch."""
    from turnwise.cli.interrupt import stoppable
    from turnwise.cli.live import reporter
    from turnwise.loop import train

    with closing(reporter(quiet=quiet, terminal=sys.stdout.isatty())) as told, stoppable(told.note) as stop:
        train(config, told, resume=resume, stop=stop)
    return 0
