"""Conversations gathered from episodes: what is kept, what is stripped, and that nothing is played twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from chat_server import completion, serving

from turnwise.cli.main import main
from turnwise.config import dump, load
from turnwise.config.run import SamplingConfig, TinyConfig
from turnwise.config.sft import DemoEnvConfig, EndpointConfig, SftDataConfig
from turnwise.endpoint import Endpoint, Reply
from turnwise.envs.tasks import side
from turnwise.errors import ConfigError, EngineError, RunError
from turnwise.reporter import Silent
from turnwise.sft import gather
from turnwise.sft.lines import mistake
from turnwise.sft.players import Episode
from turnwise.types import Task, Trajectory

HERE = Path(__file__).parent
ENV = f"{HERE / 'asked_env.py'}:Asked"
EXPERT = f"{HERE / 'asked_env.py'}:expert"
HELD = {"holdout_fraction": 0.0}
SERVED = ["--source", "endpoint", "--endpoint.url", "http://127.0.0.1:9/v1", "--endpoint.name", "m"]


def config(out, **more):
    env = DemoEnvConfig(id=ENV, **HELD, **more.pop("env", {}))
    fields = {"out": str(out / "demos"), "source": "expert", "expert": EXPERT, "tasks": 10, "parallel": 3, "env": env}
    return SftDataConfig(**(fields | more))


def kept(out):
    path = out / "demos" / "data.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def episodes(out):
    return [json.loads(line) for line in (out / "demos" / "episodes.jsonl").read_text().splitlines()]


def counting(said=lambda task: "1", fail=lambda task: None):
    """A player that says one word and remembers whom it played."""
    played: Counter[str] = Counter()

    async def play(task: Task, attempt: int) -> Episode:
        played[f"{task.key}#{attempt}"] += 1
        talk = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said(task)}]
        found = Trajectory("asked", task, 0, attempt, 0, messages=talk, error=fail(task))
        found.reward = float(said(task) == "1")
        return Episode(found)

    return played, play


def test_only_episodes_over_the_threshold_are_kept_and_every_one_is_listed(tmp_path):
    assert gather(config(tmp_path, tasks=20)) == {"kept": 10, "under_threshold": 10}
    assert {record["metadata"]["id"] for record in kept(tmp_path)} == {f"asked/{n}#0" for n in range(0, 20, 2)}
    assert len(episodes(tmp_path)) == 20
    assert all(mistake(record) is None for record in kept(tmp_path))
    assert {record["metadata"]["reward"] for record in kept(tmp_path)} == {1.0}


def test_repeating_the_call_plays_nothing_again_and_more_tasks_go_on(tmp_path):
    played, player = counting()
    gather(config(tmp_path, tasks=4), by=player)
    gather(config(tmp_path, tasks=4), by=player)
    assert (len(played), set(played.values())) == (4, {1})
    assert gather(config(tmp_path, tasks=9, parallel=5), by=player) == {"kept": 9}
    assert (len(played), set(played.values())) == (9, {1})


def test_a_call_that_was_stopped_goes_on_where_it_was(tmp_path):
    played, player = counting()
    stop = threading.Event()

    class Stopper(Silent):
        def progress(self, stage, done, total):
            if done == 3:
                stop.set()

    gather(config(tmp_path, parallel=1), Stopper(), stop=stop, by=player)
    assert sum(played.values()) == 3
    gather(config(tmp_path), by=player)
    assert (len(played), set(played.values()), len(kept(tmp_path))) == (10, {1}, 10)


@pytest.mark.parametrize("file", ["data.jsonl", "episodes.jsonl"])
def test_a_line_that_was_torn_is_cut_off_and_nothing_is_lost_or_doubled(tmp_path, file):
    played, player = counting()
    gather(config(tmp_path, tasks=3, parallel=1), by=player)
    path = tmp_path / "demos" / file
    path.write_bytes(path.read_bytes()[:-7])
    gather(config(tmp_path), by=player)
    names = [record["metadata"]["id"] for record in kept(tmp_path)]
    assert len(names) == len(set(names)) == 10
    # A kill can only leave the list of episodes short, whose conversation then stands already.
    assert max(played.values()) == (2 if file == "data.jsonl" else 1)


def test_a_conversation_whose_episode_was_not_listed_is_not_played_again(tmp_path):
    played, player = counting()
    gather(config(tmp_path, tasks=3, parallel=1), by=player)
    path = tmp_path / "demos" / "episodes.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:-1]))
    assert gather(config(tmp_path, tasks=3), by=player) == {"kept": 3}
    assert set(played.values()) == {1}


def test_a_call_that_is_killed_ends_with_every_episode_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYED", str(tmp_path / "played"))
    slow = EXPERT.replace(":expert", ":slow_expert")
    (tmp_path / "demos.toml").write_text(dump(config(tmp_path, expert=slow, tasks=20, parallel=2)))
    command = [sys.executable, "-m", "turnwise.cli.main", "sft-data", "@", str(tmp_path / "demos.toml"), "--quiet"]
    lines = tmp_path / "demos" / "episodes.jsonl"
    with subprocess.Popen(command) as life:
        until = time.monotonic() + 60
        while not lines.exists() or lines.read_bytes().count(b"\n") < 7:
            assert time.monotonic() < until
            time.sleep(0.002)
        life.kill()
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert len(episodes(tmp_path)) == 20 == len({line["id"] for line in episodes(tmp_path)})
    assert {record["metadata"]["id"] for record in kept(tmp_path)} == {f"asked/{n}#0" for n in range(0, 20, 2)}
    played = Counter((tmp_path / "played").read_text().split())
    assert sum(played.values()) - 20 <= 2  # those under way when it was killed


def test_failed_episodes_are_played_again_by_the_next_call(tmp_path):
    _, player = counting(fail=lambda task: "OSError()" if task.data["n"] == 3 else None)
    assert gather(config(tmp_path, tasks=20), by=player) == {"kept": 19, "failed": 1}
    again, player = counting()
    assert gather(config(tmp_path, tasks=20), by=player) == {"kept": 20}
    assert list(again) == ["asked/3#0"]


def test_nothing_but_failures_ends_the_call_with_their_reason(tmp_path):
    _, player = counting(fail=lambda task: "OSError('no machine')")
    with pytest.raises(RunError, match=r"first 8 episodes failed; the last with: OSError\('no machine'\)"):
        gather(config(tmp_path), by=player)


def test_a_conversation_that_is_none_is_counted_with_its_reason(tmp_path):
    async def play(task, attempt):
        found = Trajectory("asked", task, 0, 0, 0, messages=[{"role": "user", "content": "?"}], reward=1.0)
        return Episode(found)

    assert gather(config(tmp_path, tasks=2), by=play) == {"invalid": 2}
    assert "found no messages" in episodes(tmp_path)[0]["why"]


def test_another_config_is_refused_and_so_is_a_folder_of_something_else(tmp_path):
    _, player = counting()
    gather(config(tmp_path, tasks=2), by=player)
    with pytest.raises(
        ConfigError, match=r"found seed 5 \(the run has 0\).*turnwise sft-data @ .*choose another --out"
    ):
        gather(config(tmp_path, seed=5), by=player)
    (tmp_path / "demos" / "config.toml").unlink()
    with pytest.raises(RunError, match=r"without config\.toml"):
        gather(config(tmp_path), by=player)


def test_more_tasks_than_there_are_is_an_error_and_not_a_repetition(tmp_path):
    _, player = counting()
    with pytest.raises(ConfigError, match=r"found tasks 30, and .* has only 20"):
        gather(config(tmp_path, tasks=30), by=player)


def test_held_out_tasks_are_never_played(tmp_path):
    played, player = counting()
    env = {"args": {"size": 200}}
    half = config(tmp_path, tasks=60).model_copy(update={"env": DemoEnvConfig(id=ENV, holdout_fraction=0.5, **env)})
    gather(half, by=player)
    assert {side(name.split("#")[0], 0.5, 0) for name in played} == {"train"}


def test_the_engine_plays_with_hints_and_saves_without_them(tmp_path):
    allowed = SamplingConfig(choices=[str(n) for n in range(3)])
    env = {"sampling": allowed, "group": 4, "args": {"size": 3}}
    tiny = {"model": "tiny", "tiny": TinyConfig(width=32, layers=1), "expert": ""}
    counts = gather(config(tmp_path, source="engine", oracle=True, tasks=3, env=env, **tiny))
    assert sum(counts.values()) == 12 and counts["kept"] > 0
    for record in kept(tmp_path):
        assert [m["role"] for m in record["messages"]] == ["user", "assistant"]
        assert "It is" not in json.dumps(record["messages"])
        assert record["tools"][0]["function"]["name"] == "look"
        assert record["metadata"]["by"] == "tiny"
    assert len(episodes(tmp_path)) == 12


@pytest.mark.parametrize(("said", "stop"), [("pass", "turn_limit"), ("end", "no_tool_call")])
def test_the_engine_heeds_what_the_config_says_of_replies(tmp_path, said, stop):
    unmoved = {"id": f"{HERE / 'asked_env.py'}:Unmoved", "args": {"size": 3}, "max_turns": 2, "on_no_call": said}
    env = DemoEnvConfig(sampling=SamplingConfig(choices=["0", "1"]), **unmoved, **HELD)
    tiny = {"model": "tiny", "tiny": TinyConfig(width=32, layers=1), "expert": "", "source": "engine"}
    gather(config(tmp_path, tasks=2, **tiny).model_copy(update={"env": env}))
    assert {line["stop"] for line in episodes(tmp_path)} == {stop}


def test_a_hint_that_the_environment_does_not_give_is_an_error(tmp_path):
    env = DemoEnvConfig(id=f"{HERE / 'asked_env.py'}:Silent", **HELD, retries=0)
    tiny = {"model": "tiny", "tiny": TinyConfig(width=32, layers=1), "expert": "", "source": "engine"}
    with pytest.raises(RunError, match="has no oracle messages"):
        gather(config(tmp_path, oracle=True, **tiny).model_copy(update={"env": env}))


def test_an_endpoint_plays_with_tools_and_hints_and_its_conversations_are_plain(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_KEY", "secret")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}

    def answer(body):
        if body["messages"][-1]["role"] == "user":
            return completion(None, "tool_calls", tool_calls=[call])
        return completion(body["messages"][-1]["content"])

    with serving(answer) as (url, had):
        endpoint = EndpointConfig(url=url, name="big", key_env="TEST_KEY")
        counts = gather(config(tmp_path, source="endpoint", expert="", oracle=True, endpoint=endpoint, tasks=4))
    assert counts == {"kept": 4}
    for record in kept(tmp_path):
        assert [m["role"] for m in record["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert record["messages"][1]["tool_calls"] == [call]
        assert record["metadata"]["by"] == "big"
    assert {(request["path"], request["key"]) for request in had} == {("/v1/chat/completions", "Bearer secret")}
    first = had[0]["body"]
    assert (first["model"], first["tools"][0]["function"]["name"]) == ("big", "look")
    assert first["messages"][0]["content"].startswith("It is ")


def test_a_server_that_is_busy_is_asked_again_and_one_that_refuses_is_not():
    left = [(503, "busy"), (429, "slow down"), completion("hi")]

    async def asked(url, **more):
        endpoint = Endpoint(EndpointConfig(url=url, name="m", **more), again_s=0.001)
        return await endpoint.ask([{"role": "user", "content": "?"}], max_tokens=9, temperature=1.0, seed=1)

    with serving(lambda body: left.pop(0)) as (url, had):
        assert asyncio.run(asked(url)) == Reply({"role": "assistant", "content": "hi"}, cut=False)
        assert len(had) == 3
    with serving(lambda body: (401, "no key")) as (url, had):
        with pytest.raises(EngineError, match="status 401: no key"):
            asyncio.run(asked(url))
        assert len(had) == 1
    with serving(lambda body: (200, "<html>")) as (url, _), pytest.raises(EngineError, match="no chat completion"):
        asyncio.run(asked(url))
    with pytest.raises(EngineError, match="gives no answer"):
        asyncio.run(asked("http://127.0.0.1:9", retries=1))


def test_a_reply_that_was_cut_is_no_conversation(tmp_path):
    with serving(lambda body: completion("1", "length")) as (url, _):
        endpoint = EndpointConfig(url=url, name="big")
        counts = gather(config(tmp_path, source="endpoint", expert="", endpoint=endpoint, tasks=2))
    assert counts == {"under_threshold": 2}
    assert {line["stop"] for line in episodes(tmp_path)} == {"length"}


def test_the_planner_of_babyai_is_a_source_of_demonstrations(tmp_path):
    words = ["sft-data", "--source", "expert", "--tasks", "3", "--out", str(tmp_path / "demos"), "--quiet"]
    assert main(words) == 0
    assert len(kept(tmp_path)) == 3
    assert kept(tmp_path)[0]["messages"][0]["role"] == "system"


def test_the_command_counts_and_says_how_to_go_on(tmp_path, capsys):
    words = ["--source", "expert", "--expert", EXPERT, "--env.id", ENV, "--env.holdout_fraction", "0", "--tasks", "20"]
    assert main(["sft-data", *words, "--out", str(tmp_path / "demos")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[2].startswith("2 of 20 episodes: ") and len(out) == 14
    assert out[-2].startswith("kept 10, under threshold 10 of 20 episodes")
    assert out[-1].startswith("train on it: turnwise sft --data ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--source", "endpoint"], "without endpoint.url and endpoint.name"),
        (["--source", "expert", "--oracle"], "expected neither"),
        (["--env.sampling.temperature", "0"], "temperature 0 with source engine"),
        (["--source", "expert", "--env.on_cut", "end"], "found env.on_cut 'end' with source expert"),
        (["--env.save_columns", '["level"]'], "found env.echo or env.save_columns"),
        ([*SERVED, "--env.sampling.top_k", "5"], "top_k 5 and min_p 0.0 with source endpoint"),
        (["--source", "cloud"], "expected 'engine', 'endpoint' or 'expert'"),
    ],
)
def test_config_mistakes_are_told(words, expected):
    with pytest.raises(ConfigError) as caught:
        load(words, SftDataConfig)
    assert expected in str(caught.value)


def test_an_environment_without_an_expert_says_how_to_name_one(tmp_path):
    with pytest.raises(ConfigError, match=r"has none; expected one of babyai, or name your own: --expert"):
        gather(config(tmp_path, expert=""))
