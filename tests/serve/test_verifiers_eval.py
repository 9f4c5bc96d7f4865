"""`vf-eval`, with which the library verifiers evaluates, asks our server: its requests, tools and rewards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from process import serving
from served import app_over, listening

from turnwise.config.run import TinyConfig
from turnwise.model import tiny
from turnwise.testing import FakeEngine, byte_tokenizer
from turnwise.text.families import MARKS

TESTS = Path(__file__).parents[1]
ENVIRONMENTS = (TESTS.parent / "examples/number_guess", TESTS / "envs")
PROGRAMS = Path(sys.executable).parent
HARNESS = ["--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess"]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 0, "b": 0}}\n</tool_call>'

pytestmark = [pytest.mark.peer("verifiers"), pytest.mark.peer("uv")]


def evaluate(folder: Path, url: str, *words: str) -> list[dict[str, Any]]:
    """What each episode left, in the order of the tasks; vf-eval ends with 0 whether they failed or not."""
    known = [*map(str, ENVIRONMENTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    path = os.pathsep.join([str(PROGRAMS), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, known)), "SOME_KEY": "anything"}
    client = ["--client.base-url", f"{url}/v1", "--client.api-key-var", "SOME_KEY"]
    where = ["-o", str(folder), "--run.name", "evaluation", "--no-push", "--no-rich"]
    command = [str(PROGRAMS / "vf-eval"), *words, "-m", "tiny", *client, *HARNESS, *where]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    episodes = [json.loads(line) for line in (folder / "evaluation/traces.jsonl").read_text().splitlines()]
    assert [e["errors"] + e["traces"][0]["errors"] for e in episodes] == [[]] * len(episodes)
    return sorted((e["traces"][0] for e in episodes), key=lambda trace: trace["task"]["data"]["idx"])


def counted(url: str) -> dict[str, float]:
    """The server's counters."""
    lines = [line.rsplit(" ", 1) for line in httpx.get(f"{url}/metrics").text.splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in lines}


def asked(route: str) -> str:
    return f'turnwise_requests_total{{route="{route}",status="200"}}'


def test_an_evaluation_over_the_chat_route_brings_rewards_back(tmp_path):
    (two,) = byte_tokenizer().encode("2", add_special_tokens=False)
    always = tmp_path / "always_two.toml"
    always.write_text(
        f'[env.taskset]\nid = "number_guess"\n[sampling]\nmax_tokens = 1\nlogit_bias = {{ {two} = 100 }}\n'
    )
    with serving() as (_, url):
        traces = evaluate(tmp_path, url, "@", str(always), "-n", "3")
        counters = counted(url)
    assert [trace["rewards"]["right"]["score"] for trace in traces] == [0.0, 1.0, 0.0]
    assert [trace["metrics"]["guesses"] for trace in traces] == [4.0, 1.0, 4.0]
    assert counters[asked("/v1/chat/completions")] == counters["turnwise_completion_tokens_total"] == 9.0


def test_the_client_for_training_gets_tokens_and_each_is_read_once(tmp_path):
    model = tmp_path / "model"
    tiny.build([], TinyConfig(layers=2, width=32, heads=4, kv_heads=2), 0, "cpu", marks=MARKS).save(model)
    renderer = ["--client.renderer.name", "qwen3", "--client.renderer.thinking-retention", "all"]
    client = ["--client.type", "train", *renderer, "--client.renderer-model-name", str(model)]
    with serving("--name", "tiny", model=str(model)) as (_, url):
        (trace,) = evaluate(tmp_path, url, "number_guess", "-n", "1", "--sampling.max-tokens", "8", *client)
        counters = counted(url)
    replies = [node for node in trace["nodes"] if node["sampled"]]
    tokens = sum(len(node["token_ids"]) for node in trace["nodes"])
    assert [sum(node["mask"]) for node in replies] == [len(node["logprobs"]) for node in replies]
    assert sum(len(node["logprobs"]) for node in replies) == counters["turnwise_completion_tokens_total"]
    assert counters[asked("/inference/v1/generate")] == len(replies) == 4
    assert counters["turnwise_engine_tokens_read"] == tokens - 1


def test_tools_of_an_environment_are_called_over_the_chat_route(tmp_path):
    replies = [[*byte_tokenizer().encode(text, add_special_tokens=False), 2] for text in (CALL, "0")]

    async def work() -> list[dict[str, Any]]:
        async with listening(app_over(FakeEngine(replies))) as url:
            return await asyncio.to_thread(evaluate, tmp_path, url, "vf_adder", "-n", "1")

    (trace,) = asyncio.run(work())
    assert [node["message"]["role"] for node in trace["nodes"]] == ["user", "assistant", "tool", "assistant"]
    assert {name: reward["score"] for name, reward in trace["rewards"].items()} == {"right": 1.0, "asked": 1.0}
