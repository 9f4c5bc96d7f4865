"""The doctor plays environments with every template: exact, and no break that the template does not make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.cli.main import main
from turnwise.config.doctor_env import EnvDoctorConfig, PlayedConfig
from turnwise.config.run import TinyConfig
from turnwise.errors import ConfigError, RunError
from turnwise.evals.env_parity import examine
from turnwise.evals.scripted import replies
from turnwise.model.tiny import train_tokenizer
from turnwise.testing import tiny_model
from turnwise.text.families import FAMILIES, MARKS
from turnwise.types import Observation, Task

TINY = TinyConfig(width=32, layers=1)


class Failing:
    """An environment that breaks at the first reply."""

    @staticmethod
    def tasks():
        return [Task(f"failing/{n}") for n in range(20)]

    async def start(self, task):
        return Observation([{"role": "user", "content": "go"}])

    async def step(self, message):
        raise OSError("no machine")

    async def close(self): ...


def config(env="babyai", **more):
    return EnvDoctorConfig(tiny=TINY, tasks=2, env=PlayedConfig(id=env, max_turns=3), **more)


@pytest.mark.parametrize("env", ["babyai", "forth", "recall"])
def test_every_template_is_exact_in_every_environment_and_append_only_ones_never_break(env):
    cases = examine(config(env))
    assert [c["name"] for c in cases] == [f"{f}, {way}" for f in FAMILIES for way in ("free", "every form")]
    assert max(c["max_abs_diff"] for c in cases) < 1e-4
    assert {c["name"].split(",")[0] for c in cases if c["append-only"] == "yes"} == {"llama-3", "chatml", "appends"}
    assert {c["breaks"] for c in cases if c["append-only"] == "yes"} == {"none"}
    assert all(c["clean"] > 0 for c in cases if c["append-only"] == "yes")
    assert any("thinking_stripped" in c["breaks"] for c in cases if c["name"] == "forgets, every form")


def test_the_forms_are_plain_reasoned_and_a_call_of_each_tool_where_the_family_can_write_them():
    tool = {"type": "function", "function": {"name": "look", "parameters": {"properties": {"n": {"type": "integer"}}}}}
    found = {}
    for name, family in FAMILIES.items():
        tokenizer = train_tokenizer([], 259, MARKS)
        found[name] = [tokenizer.decode(ids) for ids in replies(family.make(tokenizer), ["ok"], [tool])]
    assert found["llama-3"] == ["ok<|eot_id|>", '{"name": "look", "parameters": {"n": 1}}<|eot_id|>']
    assert found["chatml"] == [
        "ok<|im_end|>",
        "<think>\nhm\n</think>\n\nok<|im_end|>",
        '<tool_call>\n{"name": "look", "arguments": {"n": 1}}\n</tool_call><|im_end|>',
        '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "look", "arguments": {"n": 1}}\n</tool_call><|im_end|>',
    ]


def test_the_command_tells_and_its_exit_code_says_whether_all_is_well(capsys, tmp_path):
    words = ["doctor", "--env", "recall", "--families", "chatml", "--tasks", "2", "--env.max_turns", "2"]
    assert main([*words, "--json", str(tmp_path / "doctor.json")]) == 0
    out = capsys.readouterr().out
    assert "chatml, free" in out and "recall is exact" in out
    cases = json.loads((tmp_path / "doctor.json").read_text())["cases"]
    assert [c["name"] for c in cases] == ["chatml, free", "chatml, every form"]
    assert main([*words, "--threshold", "1e-12"]) == 1
    assert "recall is not exact with chatml" in capsys.readouterr().out


def test_a_break_that_an_append_only_template_does_not_make_fails_the_command(capsys, monkeypatch):
    case = {"name": "chatml, free", "max_abs_diff": 0.0, "tokens": 1.0, "turns": 2.0, "clean": 0.0}
    broken = [{**case, "append-only": "yes", "breaks": "rewritten 1", "unmeant": 1.0}]
    monkeypatch.setattr("turnwise.evals.env_parity.examine", lambda config: broken)
    assert main(["doctor", "--env", "recall"]) == 1
    assert "breaks prefixes that an append-only template keeps" in capsys.readouterr().out


def test_episodes_that_fail_and_families_that_are_not_there_are_told(tmp_path):
    tiny_model().save(tmp_path)
    with pytest.raises(RunError, match=r"4 of 4 episodes failed.*no machine"):
        examine(config(f"{Path(__file__)}:Failing", model=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"found family 'lama-3'.*did you mean 'llama-3'"):
        examine(config(families=["lama-3"]))


@pytest.mark.parametrize("words", [["--env"], ["--env", "--tasks", "2"]])
def test_an_environment_without_a_name_is_asked_for(words, capsys):
    assert main(["doctor", *words]) == 2
    assert "expected `--env babyai`" in capsys.readouterr().err


def test_the_templates_are_printed_as_the_docs_show_them(capsys):
    assert main(["doctor", "--templates"]) == 0
    assert capsys.readouterr().out in (Path(__file__).parents[2] / "docs" / "templates.md").read_text()


@pytest.mark.real
def test_smollm2_plays_an_environment_exactly():
    played = PlayedConfig(id="recall", max_turns=2, group=1)
    cases = examine(EnvDoctorConfig(model="smollm2", tasks=1, max_tokens=4, env=played))
    assert [c["name"] for c in cases] == ["ChatML, free", "ChatML, every form"]
    assert all(c["max_abs_diff"] < 1e-4 and c["breaks"] == "none" for c in cases)


def test_a_cache_that_is_compacted_on_the_way_is_exact_and_is_no_break_of_the_templates(capsys):
    words = ["--families", "chatml", "--tasks", "2", "--tiny.width", "32", "--tiny.layers", "1"]
    words += ["--rollout.compaction.trigger", "turns", "--rollout.compaction.protect_turns", "1"]
    assert main(["doctor", "--env", "recall", *words]) == 0
    assert "compacted" in capsys.readouterr().out
