"""A vLLM server of our own: started, waited for, spoken to over its token route, and ended.

It runs in a process and, if need be, an environment of its own: vLLM pins versions of torch and transformers that are
not ours. What comes in is a folder in Hugging Face layout and how to serve it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from turnwise.engine.vllm_http import VllmHttpEngine
from turnwise.errors import EngineDown

WAIT_S = 600.0
"""A server that is not ready by then never will be; most of it is the compilation of a large model."""
LAST_LINES = 5
BATCHED = 8192
"""Tokens read in one step, where prompts are read whole; at least a context."""


@dataclass(frozen=True, slots=True)
class Server:
    """How to serve. `python` is the interpreter that vLLM is installed for; `cache_gib` counts on the CPU only."""

    model: Path
    python: str = sys.executable
    dtype: str = "float32"
    context: int = 4096
    threads: int = 0
    cache_gib: int = 2
    eager: bool = False
    whole_prompts: bool = True
    """Prompts are never read in pieces: on a CPU, vLLM ends itself where it splits one whose request has a seed."""
    extra: tuple[str, ...] = ()

    def words(self, port: int) -> list[str]:
        """The command line; log-probabilities are to be of the distribution that is drawn from."""
        batched = max(self.context, BATCHED)
        return [
            *(self.python, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(self.model), "--served-model-name", self.model.name),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--dtype", self.dtype, "--max-model-len", str(self.context)),
            *("--enable-scale-out", "--enable-prefix-caching", "--logprobs-mode", "processed_logprobs"),
            *(["--enforce-eager"] if self.eager else []),
            *(["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(batched)] if self.whole_prompts else []),
            *self.extra,
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Without a hub and without reports; its development routes load weights and pause."""
        own = {
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(self.cache_gib),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "HF_HUB_OFFLINE": "1",
        }
        left = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
        return {**left, **own, **({"OMP_NUM_THREADS": str(self.threads)} if self.threads else {})}


@contextmanager
def serving(server: Server, log: Path) -> Iterator[str]:
    """The URL of a server that is ready; it is ended after use. What it says goes to `log`."""
    process, url = _start(server, log)
    try:
        _wait(process, url, log)
        yield url
    finally:
        _end(process)


class VllmEngine(VllmHttpEngine):
    """Implements types.Engine over a server that lives as long as it."""

    def __init__(self, server: Server, log: Path) -> None:
        self.process, url = _start(server, log)
        try:
            _wait(self.process, url, log)
        except EngineDown:
            _end(self.process)
            raise
        super().__init__(url, server.model.name)

    async def aclose(self) -> None:
        """Close the connections, then end the server."""
        await super().aclose()
        _end(self.process)


def _start(server: Server, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with log.open("wb") as said:
        process = subprocess.Popen(
            server.words(port), env=server.environment, stdout=said, stderr=subprocess.STDOUT, process_group=0
        )
    return process, f"http://127.0.0.1:{port}"


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Return when the server answers."""
    late = time.monotonic() + WAIT_S
    while process.poll() is None and time.monotonic() < late:
        try:
            if httpx.get(f"{url}/health", timeout=5.0).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    last = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
    what = "no answer" if process.poll() is None else f"exit code {process.returncode}"
    raise EngineDown(f"found {what} from vLLM; expected a server at {url}: its words are in {log}, the last\n{last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """vLLM ends its own processes when asked; what is left of its group after that is killed."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
