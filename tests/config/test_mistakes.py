"""Every mistake is named with its place, what was found and what was probably meant."""

from __future__ import annotations

import pytest

from turnwise.config import load
from turnwise.errors import ConfigError


def mistakes(*words: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(words)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--train.lrr", "1"], "--train.lrr: unknown flag; did you mean --train.lr?"),
        (["--lr", "1"], "--lr: unknown flag; did you mean --train.lr?"),
        (["--trian.lr=1"], "--trian.lr: unknown flag; did you mean --train.lr?"),
        (["--zzzzzz", "1"], "--zzzzzz: unknown flag; --help lists all"),
        (["--train", "1"], "--train: found a section; expected one of its keys, such as --train.steps"),
        (["--train.lr"], "train.lr (flag): found no value; expected `--train.lr NUMBER`"),
        (["--train.lr", "--seed", "3"], "train.lr (flag): found no value; expected `--train.lr NUMBER`"),
        (["--env.args.level"], "env.args.level (flag): found no value; expected `--env.args.level VALUE`"),
        (["--train.lr", "fast"], "train.lr (flag): found 'fast'; expected a number"),
        (["--train.steps", "0"], "train.steps (flag): found '0'; expected at least 1"),
        (["--train.lr", "10"], "train.lr (flag): found '10'; expected below 10.0"),
        (["--train.betas", "0.9"], "train.betas (flag): found ['0.9']; expected at least 2 values"),
        (["--train.betas", "0.9", "x"], "train.betas[1] (flag): found 'x'; expected a number"),
        (["--train.betas", "[0.9"], "train.betas (flag): found '[0.9'; expected JSON, or words without brackets"),
        (["--train.share", "grop"], "train.share (flag): found 'grop'; expected 'trajectory' or 'group'; "
         "did you mean 'group'?"),
        (["--loss.type", "grppo"], "loss.type (flag): found 'grppo'; expected one of 'dppo', 'grpo', 'gspo', 'cispo', "
         "'opd', 'sft', 'custom'; "
         "did you mean 'grpo'?"),
        (["--loss.type", "grpo", "--loss.kl_tau", "1"], 'loss.kl_tau (flag): unknown key for type "grpo"; '
         'it belongs to type "dppo"'),
        (["--advantage.std", "maybe"], "found 'maybe' alone; expected `@ run.toml` or `--key value`"),
        (["run.toml"], "found 'run.toml' alone; expected `@ run.toml` or `--key value`"),
        (["@"], "found @ at the end; expected a file behind it, as in `@ run.toml`"),
        (["@", "run.yaml"], "found config file run.yaml; expected a name that ends in .toml"),
        (["@", "absent.toml"], "Config file not found: absent.toml"),
        (["--env.args", '{"a": null}'], "env (flag): found args {'a': None}; expected values that TOML can write: "
         "leave out what is null"),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_named(words, line):
    assert mistakes(*words) == [line]


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ("[train]\nlrr = 1", "train.lrr ({path}): unknown key; did you mean train.lr?"),
        ("lr = 1", "lr ({path}): unknown key; did you mean train.lr?"),
        ("[trian]\nlr = 1", "trian.lr ({path}): unknown key; did you mean train.lr?"),
        ("[env]\nsampling.group = 3", "env.sampling.group ({path}): unknown key; did you mean env.group?"),
        ('[loss]\ntype = "grpo"\nhihg = 1', "loss.hihg ({path}): unknown key; did you mean loss.high?"),
        ("train = 3", "train ({path}): found 3; expected a table"),
        ("seed = 1.5", "seed ({path}): found 1.5; expected a whole number"),
        ("[train]\nlr = nan", "train.lr ({path}): found nan; expected below 10.0"),
        ("seed = =", "Invalid TOML in {path}: Invalid value (at line 1, column 8)"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(tmp_path, toml, line):
    path = tmp_path / "run.toml"
    path.write_text(toml)
    assert mistakes("@", str(path)) == [line.format(path=path)]


def test_all_mistakes_are_named_at_once(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[train]\nlrr = 1\nsteps = 0\n")
    assert mistakes("@", str(path), "--lr", "1", "--seed", "x") == [
        "--lr: unknown flag; did you mean --train.lr?",
        "seed (flag): found 'x'; expected a whole number",
        f"train.steps ({path}): found 0; expected at least 1",
        f"train.lrr ({path}): unknown key; did you mean train.lr?",
    ]


def test_a_file_that_is_no_text_is_a_config_error(tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xff\xfe")
    assert mistakes("@", str(path))[0].startswith("cannot read a config file: ")
