"""A package of Turnwise imports only from those above it, wherever in a file the import stands."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import turnwise

ROOT = Path(turnwise.__file__).parent
LAYERS = (
    "types",
    "errors",
    "imports",
    "sealed",
    "reporter",
    "config",
    "text",
    "endpoint",
    "kv",
    "model",
    "envs",
    "condense",
    "agents",
    "engine",
    "trees",
    "rows",
    "losses",
    "train",
    "weights",
    "runs",
    "serve",
    "evals",
    "view",
    "cluster",
    "parts",
    "loop",
    "sft",
    "starter",
    "testing",
    "bench",
    "cli",
)
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def layer(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imported(source: str, package: str) -> set[str]:
    """The layers a file of `turnwise.<package>` imports: "from turnwise.text import ids" is text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("turnwise.")}
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"found a relative import at line {node.lineno}; expected `from turnwise.{package}`")
        elif isinstance(node, ast.ImportFrom) and node.module == "turnwise":
            found |= {name.name for name in node.names if name.name in LAYERS}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turnwise."):
            found.add(str(node.module).split(".")[1])
    return found


@pytest.mark.parametrize("path", [p for p in FILES if len(p.parts) > 1 or p.stem != "__init__"], ids=str)
def test_a_file_imports_only_layers_above_its_own(path):
    own = layer(path)
    above = set(LAYERS[: LAYERS.index(own) + 1])
    assert imported((ROOT / path).read_text(), own) - above == set()


def test_every_package_has_its_place_in_the_list():
    assert {layer(p) for p in FILES} - {"__init__"} <= set(LAYERS)


def test_imports_inside_functions_are_seen():
    source = (
        "def f():\n    from turnwise.loop import train\n    import turnwise.cli.main\n    from turnwise import kv\n"
    )
    assert imported(source, "text") == {"loop", "cli", "kv"}
