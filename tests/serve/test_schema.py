"""Is the OpenAPI true? schemathesis asks every route what its description allows, and what it does not."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from served import ADMIN, app_over, asks, listening

CONFIG = Path(__file__).with_name("schemathesis.toml")
WORDS = [
    "--phases",
    "coverage,fuzzing",
    "--max-examples",
    "5",
    "--max-time",
    "45",
    "--request-timeout",
    "60",
    "--seed",
    "1",
]


def test_the_openapi_is_true(tmp_path):
    """Without /pause, after which everything would wait."""

    async def work() -> tuple[int, str]:
        async with listening(app_over(max_tokens=4, max_sessions=64, deadline_s=1.0)) as url:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *["-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", f"{url}/openapi.json"],
                *["--header", f"Authorization: Bearer {ADMIN}", "--exclude-path", "/pause", "--no-color", *WORDS],
                cwd=tmp_path,  # it keeps what failed there
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said = (await process.communicate())[0].decode()
            return process.returncode or 0, said

    code, said = asyncio.run(work())
    assert code == 0, said[-6000:]


def test_every_route_describes_its_errors_and_answers():
    (said,) = asks(app_over(), {"path": "/openapi.json", "method": "GET"})
    for path, methods in said.json()["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            assert "200" in operation["responses"], path
            if "requestBody" in operation:
                assert {"400", "422", "429", "503"} <= operation["responses"].keys(), path
