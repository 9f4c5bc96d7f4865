"""What only a real vLLM server shows: its words for log-probabilities and versions, its weights, its end."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest
import real_vllm as server
import torch

from turnwise.engine import LocalEngine
from turnwise.engine.vllm import Server, VllmEngine, _end, serving
from turnwise.engine.vllm_http import VllmHttpEngine, completion
from turnwise.errors import EngineDown
from turnwise.model import load, smollm2
from turnwise.types import Sampling

PROMPT = [504, 2365, 282, 4649, 314]


GREEDY = Sampling(temperature=0.0, max_tokens=8, top_logprobs=3)


def stepped(engine, *, sampling=GREEDY, close=True):
    async def run():
        session = await engine.open(PROMPT, sampling, seed=3)
        said = await engine.step(session, [])
        if close:
            await engine.aclose()
        return said

    return asyncio.run(run())


@pytest.mark.vllm
@pytest.mark.real
def test_greedy_tokens_and_their_log_probabilities_are_those_of_our_engine():
    theirs = stepped(VllmHttpEngine(server.url(), server.MODEL.name))
    ours = stepped(LocalEngine(load("smollm2", device="cpu")), close=False)
    assert theirs.ids.tolist() == ours.ids.tolist()
    np.testing.assert_allclose(theirs.logprobs, ours.logprobs, atol=1e-3)
    assert [[i for i, _ in top] for top in theirs.top] == [[i for i, _ in top] for top in ours.top]


@pytest.mark.vllm
@pytest.mark.real
def test_log_probabilities_are_of_the_distribution_that_was_drawn_from():
    said = stepped(VllmHttpEngine(server.url(), server.MODEL.name), sampling=Sampling(temperature=0.5, max_tokens=6))
    policy = load("smollm2", device="cpu")
    ids = [*PROMPT, *said.ids.tolist()]
    logits = policy.model(torch.tensor([ids])).logits[0, len(PROMPT) - 1 : -1] / 0.5
    expected = logits.log_softmax(-1).detach().numpy()[range(6), said.ids]
    np.testing.assert_allclose(said.logprobs, expected, atol=1e-3)


@pytest.mark.vllm
@pytest.mark.real
def test_tokens_carry_the_version_of_the_weights_a_server_loaded_last():
    async def run():
        engine = VllmHttpEngine(server.url(), server.MODEL.name)
        await engine.load(smollm2.folder(), 4)
        session = await engine.open(PROMPT, Sampling(max_tokens=4), seed=3)
        said = await engine.step(session, [])
        await engine.load(smollm2.folder(), 0)
        await engine.aclose()
        return said

    assert asyncio.run(run()).policy_versions.tolist() == [4] * 4


@pytest.mark.vllm
@pytest.mark.real
def test_an_engine_that_owns_its_server_ends_it(tmp_path):
    engine = VllmEngine(server.settings(), tmp_path / "server.log")
    assert len(stepped(engine).ids) == 8
    assert engine.process.poll() is not None


def test_a_server_that_does_not_start_says_its_last_words(tmp_path):
    with (
        pytest.raises(EngineDown, match=r"found exit code 1 from vLLM; .*\n(.*\n)*.*No module named"),
        serving(Server(tmp_path, sys.executable), tmp_path / "server.log"),
    ):
        pass


def test_a_process_that_does_not_listen_is_ended_with_all_its_children():
    child = "import subprocess, time; subprocess.Popen(['sleep', '60']); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", child], process_group=0)
    _end(process)
    assert process.poll() is not None


def test_versions_are_told_apart_where_weights_changed_in_between():
    content = [{"logprob": -1.0, "top_logprobs": []}] * 3
    spans = [{"version": "default", "start": 0, "end": 1}, {"version": "7", "start": 1, "end": 3}]
    choice = {"token_ids": [1, 2, 3], "logprobs": {"content": content}, "finish_reason": "length"}
    said = completion({**choice, "weight_versions": spans}, Sampling(), 6)
    assert said.policy_versions.tolist() == [6, 7, 7]
    assert completion(choice, Sampling(), 6).policy_versions.tolist() == [6, 6, 6]


def test_the_likeliest_tokens_are_told_apart_from_the_sampled_one():
    tops = [{"token_id": 9, "logprob": -7.0}, {"token_id": 5, "logprob": -1.0}, {"token_id": 4, "logprob": -2.0}]
    content = [{"token_id": 9, "logprob": -7.0, "top_logprobs": tops}]
    said = completion(
        {"token_ids": [9], "logprobs": {"content": content}, "finish_reason": "length"}, Sampling(top_logprobs=2), 0
    )
    assert said.top == (((5, -1.0), (4, -2.0)),)
