"""A vLLM CPU server over SmolLM2, started when a test first asks for it and ended with the tests."""

from __future__ import annotations

import atexit
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from turnwise.engine.vllm import Server, serving
from turnwise.model import smollm2

PYTHON = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
MODEL = smollm2.cache() / "smollm2-135m-instruct"


def settings() -> Server:
    """Without compilation, which would take a minute."""
    return Server(smollm2.folder(), str(PYTHON), context=1024, cache_gib=1, eager=True)


@cache
def url() -> str:
    stack = ExitStack()
    atexit.register(stack.close)
    log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwise-vllm-"))) / "server.log"
    return stack.enter_context(serving(settings(), log))
