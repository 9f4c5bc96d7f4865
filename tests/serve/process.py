"""`turnwise serve` as a process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

COMMAND = [sys.executable, "-m", "turnwise.cli.main"]


@contextmanager
def serving(*words: str, model: str = "tiny") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on a free port, ended at the latest when the block ends."""
    process = subprocess.Popen(
        [*COMMAND, "serve", model, "--port", "0", "--threads", "1", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()
