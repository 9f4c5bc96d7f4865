"""In: a function by name, and arguments that JSON can write. Out: what it returns, or TimeoutError when it takes long.

The function runs in a process of its own, which is ended when it takes too long and started anew for the next call:
what a model has written may keep a parser busy for ever. Hashes have a fixed seed there, so that a function whose
result depends on the order of a set says the same on every machine.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import warnings
from typing import Any

from turnwise.errors import DataError
from turnwise.imports import function

START_S = 120.0
"""Seconds a process may take to import what it needs."""
AT_ONCE = 2
"""Processes of one function that may run side by side."""


class Worker:
    """Runs one function, `package.module:name`, in processes that are kept for the next call."""

    def __init__(self, place: str, timeout_s: float) -> None:
        self.place = place
        self.timeout_s = timeout_s
        self.idle: list[subprocess.Popen[bytes]] = []
        self.room = threading.BoundedSemaphore(AT_ONCE)
        atexit.register(self.close)

    async def call(self, *given: Any, timeout_s: float | None = None) -> Any:
        """What the function says; the event loop goes on meanwhile. What it raises becomes a DataError."""
        return await asyncio.to_thread(self.run, *given, timeout_s=timeout_s)

    def run(self, *given: Any, timeout_s: float | None = None) -> Any:
        """The same, for who may wait."""
        with self.room:
            process = self.idle.pop() if self.idle else self._start()
            try:
                said = self._ask(process, given, timeout_s or self.timeout_s)
            except BaseException:
                process.kill()
                _close(process)
                raise
            self.idle.append(process)
        if "error" in said:
            raise DataError(f"{self.place} failed: {said['error']}")
        return said["value"]

    def close(self) -> None:
        """End the processes that wait; a later call starts one again."""
        while self.idle:
            _close(self.idle.pop())

    def _ask(self, process: subprocess.Popen[bytes], given: Any, timeout_s: float) -> Any:
        assert process.stdin is not None
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.flush()
        return self._line(process, timeout_s)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "turnwise.envs.worker", self.place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        try:
            self._line(process, START_S)
        except BaseException:
            process.kill()
            _close(process)
            raise
        return process

    def _line(self, process: subprocess.Popen[bytes], timeout_s: float) -> Any:
        """The next line a process writes; it writes one whole line at a time."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as waiting:  # any number of open files may be
            waiting.register(process.stdout, selectors.EVENT_READ)
            if not waiting.select(timeout_s):
                raise TimeoutError(f"{self.place} took over {timeout_s} s")
        line = process.stdout.readline()
        if not line:
            raise DataError(f"the process of {self.place} ended by itself, with code {process.wait()}")
        return json.loads(line)


def _close(process: subprocess.Popen[bytes]) -> None:
    """Without input a process ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    process.wait()


def serve(place: str) -> None:
    """Answer one line after another until there are no more; what the function prints is not an answer."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    called = function(place, "the function of a worker")
    print(json.dumps({"ready": place}), file=out, flush=True)
    for line in sys.stdin:
        try:
            said = {"value": called(*json.loads(line))}
        except Exception as error:  # noqa: BLE001 - it may raise anything, and the caller is told
            said = {"error": repr(error)}
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
