"""[env.echo] in files and flags, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.config import dump, load
from turnwise.config.echo import EchoConfig
from turnwise.errors import ConfigError

WHOLE = """
[env.echo]
tool = { alpha = 0.05, tool_names = ["run_code", "submit_code"] }
user = {}
assistant = { alpha = -0.5 }
filter = { import_path = "my_pkg.filters:skip_warnings", kwargs = { pattern = "^warning" } }
initial_prompt = false
on_error = "keep"
normalization = "echo_tokens"
"""


def read(folder: Path, text: str, *flags: str) -> EchoConfig | None:
    """[env.echo] of a file and flags, which a dump of the config gives again."""
    file, again = folder / "run.toml", folder / "again.toml"
    file.write_text(text)
    config = load(["@", str(file), *flags])
    again.write_text(dump(config))
    assert load(["@", str(again)]) == config
    return config.env.echo


def test_a_file_turns_roles_on_and_an_empty_table_has_alpha_one(tmp_path: Path) -> None:
    echo = read(tmp_path, WHOLE)
    assert echo is not None and echo.tool is not None and echo.filter is not None
    assert {role: table.alpha for role, table in echo.roles.items()} == {"user": 1.0, "tool": 0.05, "assistant": -0.5}
    assert (echo.tool.tool_names, echo.filter.kwargs) == (["run_code", "submit_code"], {"pattern": "^warning"})
    assert (echo.initial_prompt, echo.on_error, echo.normalization) == (False, "keep", "echo_tokens")


def test_without_a_section_echo_is_off(tmp_path: Path) -> None:
    assert read(tmp_path, "") is None


def test_flags_say_the_same_as_a_file(tmp_path: Path) -> None:
    words = "--env.echo.tool.alpha 0.05 --env.echo.tool.tool_names run_code submit_code --env.echo.user.alpha 1.0 "
    words += "--env.echo.assistant.alpha -0.5 --env.echo.filter.import_path my_pkg.filters:skip_warnings "
    words += "--env.echo.filter.kwargs.pattern ^warning --no-env.echo.initial_prompt --env.echo.on_error keep "
    words += "--env.echo.normalization echo_tokens"
    assert read(tmp_path, "", *words.split()) == read(tmp_path, WHOLE)


def test_flags_win_over_the_file_key_by_key(tmp_path: Path) -> None:
    echo = read(tmp_path, WHOLE, "--env.echo.tool.alpha", "2", "--env.echo.tool.tool_names", "look")
    assert echo is not None and echo.tool is not None
    assert (echo.tool.alpha, echo.tool.tool_names, echo.user is not None) == (2.0, ["look"], True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "found no role; expected at least one of system, user, tool, assistant: tool ="),
        ('filter = { import_path = "a:b" }', "assistant, also beside a filter, which only takes tokens away"),
        ("tool = { alpha = nan }", "env.echo.tool.alpha .*: found nan; expected a finite number"),
        ("tool = { alpha = -inf }", "found -inf; expected a finite number"),
        ("tool = { tool_names = [] }", r"found tool_names \[\]; expected names of tools: leave tool_names out"),
        ('tool = { tool_names = ["a", ""] }', "expected names of tools"),
        ('tool = { tool_names = ["a", "a"] }', r"tool_names hold \['a'\] more than once"),
        ('user = { tool_names = ["a"] }', "env.echo.user.tool_names .*: unknown key; did you mean env.echo.tool."),
        ("usr = {}", "env.echo.usr.*unknown key"),
        ('user = {}\nfilter = { import_path = "" }', "env.echo.filter.import_path"),
        ('user = {}\nnormalization = "globl"', "did you mean 'global'"),
        ('user = {}\non_error = "ignore"', "expected 'drop' or 'keep'"),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_found(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        read(tmp_path, f"[env.echo]\n{text}")


@pytest.mark.parametrize("loss", ['type = "sft"', 'type = "opd"\nteacher = "smollm2"'])
def test_losses_that_read_no_reward_refuse_echo(tmp_path: Path, loss: str) -> None:
    with pytest.raises(ConfigError, match=r"found \[env.echo\] with loss.type (sft|opd); expected dppo, grpo"):
        read(tmp_path, f'[advantage]\ntype = "none"\n[loss]\n{loss}\n[env.echo]\nuser = {{}}')
