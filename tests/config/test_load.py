"""Files and flags to a config, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from turnwise.config import RunConfig, dump, load
from turnwise.config.loss import GrpoConfig
from turnwise.errors import ConfigError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda t: t != "None")
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | TEXT | st.just("None"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
LOSSES = [{"type": "dppo", "low": 0.5}, {"type": "grpo", "high": 1e-9}, {"type": "sft"}]
CONFIGS = st.fixed_dictionaries(
    {
        "model": TEXT,
        "seed": st.integers(-(2**53), 2**53),
        "loss": st.sampled_from(LOSSES),
        "advantage": st.just({"type": "none"}),
        "env": st.fixed_dictionaries(
            {
                "args": st.dictionaries(TEXT, VALUES, max_size=3),
                "sampling": st.fixed_dictionaries({"choices": st.lists(TEXT, max_size=3, unique=True)}),
            }
        ),
        "train": st.fixed_dictionaries({"lr": st.floats(1e-12, 9.0), "betas": st.just([0.5, 0.95])}),
    }
)


def write(folder: Path, text: str, name: str = "run.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@settings(deadline=None)
@given(CONFIGS)
def test_a_dump_loads_as_an_equal_config(tmp_path_factory, fields):
    config = RunConfig.model_validate(fields)
    path = write(tmp_path_factory.mktemp("dump"), dump(config))
    assert load(["@", path]) == config


def test_no_words_are_the_defaults():
    assert load([]) == RunConfig()


def test_flags_win_over_files_and_later_files_over_earlier(tmp_path):
    first = write(tmp_path, "seed = 1\n[train]\nlr = 0.1\nsteps = 5\n")
    second = write(tmp_path, "[train]\nlr = 0.2\ntasks = 3\n", "second.toml")
    train = load(["@", first, "@", second, "--train.steps", "7"]).train
    assert (train.lr, train.steps, train.tasks) == (0.2, 7, 3)


def test_a_file_can_hold_one_section(tmp_path):
    path = write(tmp_path, 'id = "mine:Env"\ngroup = 2\n', "env.toml")
    assert (
        load(["--env", "@", path]).env
        == load(["--env", f"@{path}"]).env
        == load(["--env.id", "mine:Env", "--env.group", "2"]).env
    )


@pytest.mark.parametrize("flag", ["--advantage.std", "--advantage.std=true", "--seed=3", "--no-advantage.std"])
def test_a_file_may_follow_any_flag(tmp_path, flag):
    path = write(tmp_path, "[train]\nsteps = 5\n")
    assert load([flag, "@", path]) == load(["@", path, flag])


def test_flags_may_use_dashes_or_underscores_and_an_equals_sign():
    spellings = (["--train.row-tokens", "9"], ["--train.row_tokens", "9"], ["--train.row_tokens=9"])
    assert [load(words).train.row_tokens for words in spellings] == [9, 9, 9]


def test_a_flag_can_reach_into_a_loss_with_an_equals_sign():
    assert load(["--loss.type=grpo", "--loss.high=0.5"]).loss == GrpoConfig(high=0.5)


def test_bools_take_no_value_one_value_or_a_no():
    words = (["--advantage.std"], ["--advantage.std", "true"], ["--no-advantage.std"], ["--advantage.std=false"])
    assert [load(w).advantage.std for w in words] == [True, True, False, False]


def test_lists_take_several_words_or_json():
    assert load(["--train.betas", "0.5", "0.9"]).train.betas == [0.5, 0.9]
    assert load(["--env.sampling.choices", '["go on", "stop"]']).env.sampling.choices == ["go on", "stop"]


def test_free_keys_keep_the_types_they_were_written_with(tmp_path):
    path = write(tmp_path, '[env.args]\nlevel = "007"\nseed = 3\n')
    words = ["@", path, "--env.args.cost", "0.5", "--env.args.fast=true", "--env.args.a.b", "x"]
    expected = {"level": "007", "seed": 3, "cost": 0.5, "fast": True, "a": {"b": "x"}}
    assert load(words).env.args == expected


def test_an_error_carries_what_pydantic_said():
    with pytest.raises(ConfigError) as caught:
        load(["--train.lr", "fast"])
    assert isinstance(caught.value.__cause__.__cause__, ValidationError)
