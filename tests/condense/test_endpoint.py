"""Summaries from an OpenAI-compatible server: a real one on loopback that says and fails as it is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from halve import BYTES, history, reasons, user

from turnwise.condense.endpoint import EndpointWriter
from turnwise.condense.written import Request, Written
from turnwise.config.condense import WriterConfig

REQUEST = Request("A long story.", 10, "who?", 7)


def answer(content: Any, finish: str = "stop") -> tuple[int, Any]:
    return 200, {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish}]}


@contextmanager
def serving(*answers: tuple[int, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these answers in turn, the last one again and again; what it was asked is listed."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({"path": self.path, "key": self.headers["Authorization"], **body})
            status, said = answers[min(len(asked), len(answers)) - 1]
            raw = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def endpoint(url: str, **config: Any) -> EndpointWriter:
    return EndpointWriter(WriterConfig(source="endpoint", url=url, name="m", **config), BYTES, again_s=0.0)


def shorten(*answers: tuple[int, Any], **config: Any) -> tuple[Written, list[dict[str, Any]]]:
    with serving(*answers) as (url, asked):
        return asyncio.run(endpoint(url, **config).shorten(REQUEST)), asked


def test_the_server_is_asked_as_openai_s_would_be_and_its_text_is_taken():
    found, (asked,) = shorten(answer(" short "), reasoning_tokens=50, temperature=0.3)
    assert found == Written("short")
    assert asked["path"] == "/v1/chat/completions" and asked["model"] == "m" and asked["key"] is None
    assert (asked["max_tokens"], asked["temperature"], asked["seed"]) == (65, 0.3, 7)
    assert [m["role"] for m in asked["messages"]] == ["system", "user"]


def test_the_key_comes_from_the_environment_variable_that_is_named(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    assert shorten(answer("short"), key_env="MY_KEY")[1][0]["key"] == "Bearer secret"


@pytest.mark.parametrize("content", ["<think>hm</think>\nshort", [{"type": "text", "text": "sh"}, "ort"]])
def test_reasoning_is_left_out_and_parts_are_read(content):
    assert shorten(answer(content))[0] == Written("short")


def test_an_answer_that_was_cut_is_asked_for_once_more_with_twice_the_room():
    found, asked = shorten(answer("a lon", "length"), answer("short"))
    assert found == Written("short") and [a["max_tokens"] for a in asked] == [15, 30]
    assert shorten(answer("a lon", "length"))[0] == Written("a lon", why="cut")


@pytest.mark.parametrize(
    "wrong",
    [
        (500, {}),
        (429, {}),
        (200, b"not json"),
        (200, {"choices": []}),
        (200, []),
        (200, {"choices": [{"message": {"content": 3}}]}),
        (200, {"choices": [{"message": "x"}]}),
        (200, {"choices": [None]}),
    ],
)
def test_whatever_goes_wrong_is_tried_again_and_then_is_data(wrong):
    found, asked = shorten(wrong, retries=2)
    assert found == Written(None, why="failed") and len(asked) == 3
    assert shorten(wrong, answer("short"), retries=1)[0] == Written("short")


def test_a_server_that_refuses_is_not_asked_again():
    found, asked = shorten((401, {"error": "no"}), answer("short"), retries=2)
    assert found == Written(None, why="failed") and len(asked) == 1


def test_a_server_that_is_not_there_leaves_the_original_and_is_counted():
    with serving(answer("short")) as (url, _):
        pass
    held = history(endpoint(url, retries=1))
    text = "a text that is long enough to be asked about"
    assert asyncio.run(held.rewrite([user(text)], "")).messages is None
    assert reasons(held) == {"chunks": 1, "failed": 1}


def test_a_server_that_takes_too_long_is_one_that_fails():
    release = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            release.wait(5)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        found = asyncio.run(endpoint(url, timeout_s=0.05, retries=0).shorten(REQUEST))
    finally:
        release.set()
        server.shutdown()
        thread.join()
        server.server_close()
    assert found == Written(None, why="failed")
