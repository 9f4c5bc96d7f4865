"""Packages with environments of the library verifiers, as if they were installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PLACES = (Path(__file__).parents[2] / "examples/number_guess", Path(__file__).parent)


@pytest.fixture
def installed_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found by this process, and by the tool servers it starts."""
    for place in PLACES:
        monkeypatch.syspath_prepend(place)
    known = [*map(str, PLACES), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, known)))
