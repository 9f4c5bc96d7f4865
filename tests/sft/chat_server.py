"""An OpenAI-shaped server on loopback that says what a test has written down."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, Any]]
"""A request's body to a status and what is sent back: a dict as JSON, a text as it is."""


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the requests it has had: path, authorization and body."""
    had: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            had.append({"path": self.path, "key": self.headers.get("Authorization"), "body": body})
            status, said = answer(body)
            text = (json.dumps(said) if isinstance(said, dict) else said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", had
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(text: str | None, finish: str = "stop", **more: Any) -> tuple[int, dict[str, Any]]:
    """A chat completion that says this."""
    message = {"role": "assistant", "content": text, **more}
    return 200, {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
