"""In: a package that only some environments need. Out: nothing, or an error that says how to install it."""

from __future__ import annotations

from importlib.util import find_spec

from turnwise.errors import ConfigError


def need(package: str, environment: str, install: str) -> None:
    """Refuse an environment whose package is not installed: need("math_verify", "math", "turnwise[math]")."""
    if find_spec(package) is None:
        raise ConfigError(
            f"found no package {package!r}; expected it for the environment {environment!r}: pip install '{install}'"
        )
