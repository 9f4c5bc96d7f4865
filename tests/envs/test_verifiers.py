"""Environments of the library verifiers, played by our turn loop and trained on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from turnwise.agents import Limits
from turnwise.agents.episode import play as play_episode
from turnwise.config import load
from turnwise.envs import find
from turnwise.errors import ConfigError, DataError
from turnwise.loop import train
from turnwise.testing import FakeEngine, byte_tokenizer
from turnwise.text import choose, reply_ids
from turnwise.types import EpisodeStop, Message, Observation, Sampling, Trajectory

ROOT = Path(__file__).parents[2]
GUESS: dict[str, Any] = {"taskset": "number_guess"}
ADDER: dict[str, Any] = {"taskset": "vf_adder"}

pytestmark = [
    pytest.mark.usefixtures("installed_environments"),
    pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated:DeprecationWarning"),  # verifiers' own
]
with_verifiers = pytest.mark.peer("verifiers")


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def call(name: str, arguments: Any) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


def play(args: dict[str, Any], replies: Sequence[Message], place: int = 0) -> list[Observation]:
    async def run() -> list[Observation]:
        environment = find("verifiers", args)
        env = environment.new()
        try:
            seen = [await env.start(next(islice(environment.tasks(), place, None)))]
            for reply in replies:
                seen += [await env.step(reply)]
            return seen
        finally:
            await env.close()

    return asyncio.run(run())


@with_verifiers
def test_user_turns_are_observations_and_the_task_s_rewards_end_the_episode() -> None:
    seen = play(GUESS, [said("5"), said("2"), said("3")], place=2)
    assert [one.messages for one in seen] == [
        [{"role": "system", "content": "Find my number from 1 to 8."}, {"role": "user", "content": "Guess."}],
        [{"role": "user", "content": "lower"}],
        [{"role": "user", "content": "higher"}],
        [],
    ]
    assert [one.done for one in seen] == [False, False, False, True]
    assert (seen[-1].reward, seen[-1].metrics) == (1.0, {"turns": 3.0, "guesses": 3.0, "right": 1.0, "success": 1.0})


@with_verifiers
def test_tools_run_on_verifiers_own_servers_and_weighted_rewards_are_metrics() -> None:
    seen = play(ADDER, [call("add", '{"a": 2, "b": 2}'), said("4")], place=2)
    assert [tool["function"]["name"] for tool in seen[0].tools or []] == ["add"]
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in seen[1].messages] == [("tool", "c1", "4")]
    assert (seen[2].reward, seen[2].metrics["right"], seen[2].metrics["asked"]) == (1.0, 0.5, 0.5)


@with_verifiers
def test_what_is_wrong_with_a_call_is_told_by_the_harness() -> None:
    failed = [
        {"name": "add", "raw": '{"name": "add", ', "status": "unclosed"},
        {"name": None, "raw": "{", "status": ""},
    ]
    replies = [call("add", "[]"), call("fly", "{}"), said("") | {"failed_calls": failed}]
    texts = [m["content"] for one in play(ADDER, replies)[1:] for m in one.messages]
    assert texts[:2] == ["error: expected a JSON object as arguments", "error: no tool fly; there are add"]
    assert texts[2].startswith("error: these arguments are no JSON") and len(texts) == 3


@with_verifiers
def test_settings_reach_the_taskset_the_environment_and_its_seats() -> None:
    args = {"taskset": {"id": "number_guess", "size": 2}, "settings": {"guesses": 9, "agent": {"max_turns": 2}}}
    assert len([*find("verifiers", args).tasks()]) == 32
    assert play(args, [said("9"), said("9")])[-1].metrics["turns"] == 2.0


@with_verifiers
def test_keys_do_not_depend_on_the_place_of_a_task() -> None:
    small, large = (
        [task.key for task in find("verifiers", {"taskset": {"id": "number_guess", "size": size}}).tasks()]
        for size in (2, 8)
    )
    assert len({*large}) == 128 and small[0] != large[0]  # the prompt says the size
    endless = [task.key for task in islice(find("verifiers", ADDER).tasks(), 9)]
    assert len({*endless}) == 9


@with_verifiers
def test_the_turn_loop_keeps_every_sampled_token() -> None:
    renderer = choose(byte_tokenizer(), "auto", "fake")
    replies = [[*reply_ids(renderer, text)] for text in ("5", "1")]
    environment = find("verifiers", GUESS)
    task = next(iter(environment.tasks()))
    engine = FakeEngine(replies)
    empty = Trajectory("verifiers", task, 0, 0, 0)
    limits = Limits(8, 4096, 60.0)
    played = asyncio.run(play_episode(environment.new(), empty, engine, renderer, Sampling(), limits))
    assert played.error is None and played.stop_reason is EpisodeStop.DONE
    assert [turn.completion_ids.tolist() for turn in played.turns] == replies
    assert played.turns[1].prompt_ids.tolist()[: len(played.turns[0].prompt_ids)] == played.turns[0].prompt_ids.tolist()
    assert played.reward == 1.0 and engine.open_sessions == 0


@with_verifiers
def test_a_step_of_training_runs_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    small = ["--out", str(tmp_path), "--train.steps", "2", "--train.tasks", "2", "--eval.tasks", "4"]
    summary = train(load(["@", "examples/verifiers.toml", *small]))
    assert summary["steps"] == 2 and summary["n"] == 4
    line = json.loads((tmp_path / "verifiers/metrics.jsonl").read_text().splitlines()[-1])
    assert line["env/turns"] >= 1.0 and line["stop/done"] == 16.0 and line["eval/errors"] == 0.0


@with_verifiers
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"taskset": "no_such_taskset"}, "taskset 'no_such_taskset' not found"),
        ({"taskset": {"size": 3}}, "expected the name of an installed package"),
        ({"taskset": {"id": "number_guess", "sizes": 3}}, "sizes"),
        ({**GUESS, "settings": {"nothing": 1}}, "nothing"),
    ],
)
def test_settings_that_verifiers_refuses_are_told(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find("verifiers", args).tasks()
    assert words in str(caught.value)


@with_verifiers
def test_a_rewritten_history_and_a_second_conversation_are_refused() -> None:
    from turnwise.envs.verifiers.env import _new
    from turnwise.envs.verifiers.exchange import Asked

    def asked(messages: list[Message], trace: str = "a") -> Asked:
        return Asked(messages, [], trace, None)  # type: ignore[arg-type]

    first: list[Message] = [{"role": "user", "content": "one"}]
    then: list[Message] = [*first, said("1"), {"role": "user", "content": [{"type": "text", "text": "two"}]}]
    assert _new(asked(first), asked(then)) == then[2:]
    with pytest.raises(DataError, match="a history that the harness has rewritten"):
        _new(asked(first), asked([{"role": "user", "content": "other"}, *then[1:]]))
    with pytest.raises(DataError, match="a history that the harness has rewritten"):
        _new(asked(then), asked(first))
    with pytest.raises(DataError, match="a second conversation"):
        _new(asked(first), asked(then, "b"))


@with_verifiers
def test_an_episode_that_fails_in_verifiers_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    import number_guess

    async def broken(self: Any, trace: Any) -> float:
        raise ValueError("no judge today")

    monkeypatch.setattr(number_guess.NumberTask.right, "__code__", broken.__code__)
    with pytest.raises(DataError, match=r"the episode failed: .*no judge today"):
        play(GUESS, [said("1")])


def test_a_missing_package_is_refused_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.envs.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'turnwise\[verifiers\]'"):
        find("verifiers", GUESS).new()
