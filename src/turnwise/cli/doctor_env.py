"""`turnwise doctor --env ID`: is an environment played and trained exactly? Exit code 1 if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.cli.json_path import json_path
from turnwise.cli.page import page, show
from turnwise.config import load
from turnwise.config.doctor_env import EnvDoctorConfig
from turnwise.errors import ConfigError

OPTIONS = {"--json PATH": "also write the figures to a file"}
USAGE = "turnwise doctor --env ID [--env.args.NAME value ...] [--model M] [--key value ...]"
ABOUT = """Plays real episodes of an environment with the model, replays them in the trainer, and compares the
log-probability of every sampled token; counts how each turn's prompt continued what stood before it, by kind of break.
A tiny model with random weights is given each of the known templates in turn. Replies are sampled freely (or from
env.sampling.choices), and then from one of every form: plain, with reasoning, a call of each tool."""


def asked(args: list[str]) -> bool:
    """Whether the words name an environment."""
    return any(word == "--env" or word.startswith(("--env=", "--env.")) for word in args)


def run(args: list[str]) -> int:
    """Play, print a table, and say what is wrong."""
    if {"-h", "--help"} & set(args):
        show(page(USAGE, ABOUT, OPTIONS, EnvDoctorConfig))
        return 0
    target, words = json_path(args)
    config = load(_named(words), EnvDoctorConfig)
    return _tell(config, target, ["turnwise doctor", *args])


def _named(args: list[str]) -> list[str]:
    """`--env ID` is `--env.id ID`; `--env @ file.toml` reads the section as everywhere."""
    words = [part for word in args for part in (word.split("=", 1) if word.startswith("--env=") else [word])]
    for at in [n for n, word in enumerate(words) if word == "--env"]:
        if at + 1 == len(words) or words[at + 1].startswith("--"):
            raise ConfigError("found --env without an environment; expected `--env babyai`, or `--env file.py:Class`")
        if not words[at + 1].startswith("@"):
            words[at] = "--env.id"
    return words


def _tell(config: EnvDoctorConfig, target: Path | None, command: list[str]) -> int:
    """Everything from here on may import torch."""
    from turnwise.bench import report
    from turnwise.evals.env_parity import examine

    cases = examine(config)
    print("\n".join(table(cases)))
    if target:
        report.write(target, " ".join(command), cases)
    wrong = [str(c["name"]) for c in cases if not float(c["max_abs_diff"]) <= config.threshold]
    broken = [str(c["name"]) for c in cases if c["append-only"] == "yes" and float(c["unmeant"])]
    if wrong:
        print(
            f"{config.env.id} is not exact with {'; '.join(wrong)}: over {config.threshold:g}. See whether the model "
            "is exact by itself: turnwise doctor --model M --dtype float32"
        )
    if broken:
        print(
            f"{config.env.id} breaks prefixes that an append-only template keeps ({'; '.join(broken)}): does the "
            "environment edit or drop messages it has said? Expected new messages only"
        )
    if not wrong and not broken:
        print(f"{config.env.id} is exact: every difference is at most {config.threshold:g}, every break the template's")
    return int(bool(wrong or broken))


COLUMNS = ("max_abs_diff", "tokens", "turns", "clean")


def table(cases: Sequence[Mapping[str, float | str]]) -> list[str]:
    """One line a case; the breaks, which may be many, come last."""
    width = max(len(str(case["name"])) for case in cases)
    lines = [" ".join([f"{'renderer, replies':<{width}}", *(f"{c:>12}" for c in COLUMNS), " append-only  breaks"])]
    for case in cases:
        numbers = [f"{float(case[c]):>12.4g}" for c in COLUMNS]
        lines.append(" ".join([f"{case['name']:<{width}}", *numbers, f" {case['append-only']:<11}  {case['breaks']}"]))
    return lines
