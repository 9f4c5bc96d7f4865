"""`turnwise doctor --model M`: is this model sampled and trained exactly? Exit code 1 if a case is not."""

from __future__ import annotations

from pathlib import Path

from turnwise.cli import doctor_env, templates
from turnwise.cli.json_path import json_path
from turnwise.cli.page import page, show
from turnwise.config import load
from turnwise.config.doctor import DoctorConfig
from turnwise.config.run import TinyConfig
from turnwise.errors import ConfigError

OPTIONS = {
    "--json PATH": "also write the figures to a file",
    "--env ID": "examine the model in an environment: `turnwise doctor --env babyai --help`",
    "--templates": "print how each known template continues a conversation (docs/templates.md)",
}
USAGE = "turnwise doctor --model M [--key value ...]"
ABOUT = """Samples conversations of several turns in the engine, with the whole cache and with one that is compacted on
the way, replays them in the trainer, alone, packed and as a tree, and compares the log-probability of every sampled
token. A difference means the trainer does not train what was sampled."""


def run(args: list[str]) -> int:
    """Examine, print a table, and say what to do where something is wrong."""
    if doctor_env.asked(args):
        return doctor_env.run(args)
    if {"-h", "--help"} & set(args):
        show(page(USAGE, ABOUT, OPTIONS, DoctorConfig))
        return 0
    if "--templates" in args:
        if args != ["--templates"]:
            raise ConfigError("found --templates among other words; expected it alone: it examines no model")
        return templates.run()
    target, words = json_path(args)
    config = load(words, DoctorConfig)
    cases = _examine(config)
    return _tell(config, cases, target, ["turnwise doctor", *args])


def _examine(config: DoctorConfig) -> list[dict[str, float | str]]:
    """Everything from here on may import torch."""
    from turnwise.evals.parity import SAID, examine
    from turnwise.model import load as load_model
    from turnwise.model import tiny

    if config.model == "tiny":
        policy = tiny.build(SAID, TinyConfig(), config.seed, config.device, config.dtype)
    else:
        policy = load_model(config.model, config.dtype, config.device)
    return examine(policy, config)


def _tell(config: DoctorConfig, cases: list[dict[str, float | str]], target: Path | None, command: list[str]) -> int:
    from rich.console import Console

    from turnwise.bench import report

    Console().print(report.table(cases))
    if target:
        report.write(target, " ".join(command), cases)
    wrong = [str(c["name"]) for c in cases if float(c["max_abs_diff"]) > config.threshold]
    if not wrong:
        print(f"{config.model} is exact: every difference is at most {config.threshold:g}")
        return 0
    print(
        f"{config.model} is not exact in {', '.join(wrong)}: over {config.threshold:g}. In bfloat16 differences near "
        "0.05 are rounding: judge with --dtype float32. In float32, `plain` points at the attention or the rotary "
        "positions, `turns` at the cache, `packed` and `fork` at what tokens of a row can see, "
        "all others at compaction: its boundary, the queries it was fitted to, or their rotation."
    )
    return 1
