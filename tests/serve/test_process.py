"""`turnwise serve` and `turnwise chat` as processes: they start, say where, talk, and stop when told."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading

import httpx
import pytest
from process import COMMAND, serving

from turnwise.cli.main import main

LONG = {"token_ids": [5, 6], "sampling_params": {"max_tokens": 4000, "seed": 1}}
SHORT = {"token_ids": [5, 6], "sampling_params": {"max_tokens": 3, "seed": 1}}


def stopped(process: subprocess.Popen[str]) -> str:
    """Tell it to stop; its last words."""
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    return said


def test_it_serves_lets_what_runs_finish_and_stops_with_code_0():
    answers: list[httpx.Response] = []
    with serving("--grace_s", "60") as (process, url):
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{url}/inference/v1/generate", json=LONG, timeout=60))
        )
        asking.start()
        while not httpx.get(f"{url}/ready").json()["running"]:
            pass
        said = stopped(process)
        asking.join()
    assert len(answers[0].json()["choices"][0]["token_ids"]) > 3
    assert said.startswith("turnwise serve: stopped after ")


def test_what_does_not_finish_in_time_is_told_so():
    answers: list[httpx.Response] = []
    with serving("--grace_s", "0.2") as (process, url):
        body = {"token_ids": [5, 6], "sampling_params": {"max_tokens": 4000, "seed": 1, "n": 16}}
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{url}/inference/v1/generate", json=body, timeout=60))
        )
        asking.start()
        while not httpx.get(f"{url}/ready").json()["running"]:
            pass
        stopped(process)
        asking.join()
    assert (answers[0].status_code, answers[0].json()["error"]["found"]) == (503, "a server that stopped")


def test_chat_talks_to_a_server_and_forgets_on_reset():
    with serving() as (_, url):
        lines = "hello\n/nonsense\n/reset\nhi\n/quit\n"
        words = [*COMMAND, "chat", url, "--max_tokens", "5", "--seed", "3"]
        done = subprocess.run(words, input=lines, capture_output=True, text=True, check=True)
    assert "found /nonsense; expected /reset or /quit" in done.stdout
    assert "(forgotten)" in done.stdout
    assert done.stderr == ""


def test_chat_with_nobody_there_says_so():
    words = [*COMMAND, "chat", "http://127.0.0.1:9", "--max_tokens", "5"]
    done = subprocess.run(words, input="hello\n", capture_output=True, text=True, check=True)
    assert done.stderr.startswith("turnwise chat: found http://127.0.0.1:9 not answering")


def test_a_port_that_is_taken_is_said_before_a_model_is_loaded(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "tiny", "--port", str(port)]) == 2
    assert "which cannot be listened on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--prot", "1"], "--prot: unknown flag; did you mean --port?"),
        (["serve", "--port", "99999"], "port (flag): found '99999'; expected at most 65535"),
        (["serve", "tiny", "--model", "smollm2"], "found 'tiny' and --model; expected one of them"),
        (["serve", "tiny", "smollm2"], "found 'smollm2' alone; expected `@ run.toml` or `--key value`"),
        (["serve", "--grace_s", "0"], "grace_s (flag): found '0'; expected above 0"),
        (["chat"], "found nobody to talk to; expected a model or a URL first"),
        (["chat", "tiny", "--temperature", "-1"], "temperature (flag): found '-1'; expected at least 0"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(capsys, words, said):
    assert main(words) == 2
    assert said in capsys.readouterr().err
