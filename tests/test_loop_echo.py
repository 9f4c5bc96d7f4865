"""Whole runs with echo: what metrics say, what stops a run, and what is found before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from small import config, lines, numbers, weights
from turnwise.config import RunConfig
from turnwise.config.echo import EchoConfig
from turnwise.config.loss import GrpoConfig
from turnwise.config.run import AdvantageConfig, EvalConfig, OracleConfig
from turnwise.errors import ConfigError, RunError
from turnwise.loop import train
from turnwise.types import Message, Observation, Task


def echoing(out: Path, echo: Any, steps: int = 3, **more: Any) -> RunConfig:
    """The small run under a loss of rewards, which are mostly alike there, so that only echo changes the weights."""
    run = config(out, steps=steps, loss=GrpoConfig(), advantage=AdvantageConfig(), eval=EvalConfig(tasks=0), **more)
    env = run.env.model_copy(update={"echo": None if echo is None else EchoConfig.model_validate(echo)})
    return run.model_copy(update={"env": env})


def test_echo_teaches_where_rewards_say_nothing_and_its_numbers_are_in_the_metrics(tmp_path: Path) -> None:
    train(echoing(tmp_path, {"user": {}}, steps=4))
    found = lines(tmp_path)[1:]
    silent = [line for line in found if not line["samples/tokens_trained"]]
    assert silent and all(line["optim/grad_norm"] > 0 for line in silent)
    assert all(line["echo/tokens/user"] > 100 and line["echo/dropped/shared"] > 0 for line in found)
    assert found[-1]["echo/nll/user"] < found[0]["echo/nll/user"]
    assert all(line["loss/total"] == line["loss/echo"] == pytest.approx(line["echo/nll/user"]) for line in silent)


def test_a_run_with_echo_that_was_stopped_and_resumed_has_the_numbers_of_one_that_was_not(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(echoing(whole, {"user": {}}, steps=4))
    train(echoing(cut, {"user": {}}, steps=2))
    train(echoing(cut, {"user": {}}, steps=4), resume=True)
    assert numbers(cut) == numbers(whole)
    assert weights(cut, 4) == weights(whole, 4)


def test_a_run_whose_echo_selects_nothing_stops_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"echo on tool selected no token in 3 batches running: \d+ tokens by role_off"):
        train(echoing(tmp_path, {"tool": {}}, steps=5))


def test_a_tool_name_that_no_tool_has_is_found_before_there_is_a_run(tmp_path: Path) -> None:
    run = echoing(tmp_path, {"tool": {"tool_names": ["run_cod", "look"]}})
    forth = run.model_copy(update={"env": run.env.model_copy(update={"id": "forth", "args": {}})})
    with pytest.raises(
        ConfigError, match=r"'run_cod' .*expected tools of forth: its tools are \['run_code', .*mean 'run"
    ):
        train(forth)
    with pytest.raises(ConfigError, match="expected tools of babyai: it has no tools"):
        train(run)
    assert not list(tmp_path.iterdir())


def test_a_run_with_an_oracle_says_what_its_bonus_is_and_scores_under_the_weights_that_sampled(tmp_path: Path) -> None:
    run = echoing(tmp_path, None, steps=2, oracle=OracleConfig(coef=0.5, clip=50.0))
    env = run.env.model_copy(update={"id": f"{__file__}:Told", "args": {}})
    train(run.model_copy(update={"env": env, "advantage": AdvantageConfig(type="none")}))
    found = lines(tmp_path)[1:]
    assert all(line["oracle/bonus"] != 0.0 and line["oracle/tokens"] > 0 for line in found)


class Told:
    """Asks for a turn; the oracle says which."""

    @staticmethod
    def tasks() -> list[Task]:
        return [Task(f"told/{n}") for n in range(50)]

    async def start(self, task: Task) -> Observation:
        hint = [{"role": "system", "content": "turn left"}]
        return Observation([{"role": "user", "content": "which way?"}], oracle=hint)

    async def step(self, message: Message) -> Observation:
        return Observation(reward=float(message["content"] == "turn left"), done=True)

    async def close(self) -> None: ...
