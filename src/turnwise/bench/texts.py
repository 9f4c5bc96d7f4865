"""Texts of four kinds that every machine has, cut into pieces of so many tokens: prose and source of Python, ours."""

from __future__ import annotations

import argparse
import difflib
import inspect
import json.decoder
import pydoc_data.topics
import textwrap
from pathlib import Path
from typing import Any

import turnwise
from turnwise.bench.report import ROOT
from turnwise.errors import ConfigError

CHARACTERS = 12
"""A token is never longer than this on average, so that no more of a source is read than needed."""


def texts(tokenizer: Any, count: int, length: int) -> list[list[int]]:
    """Text i is piece i // kinds of kind i % kinds: with 4 kinds, text 5 is the second piece of the second."""
    kinds = [*_python(), *_ours()]
    pieces = -(-count // len(kinds))
    read = [tokenizer(kind[: pieces * length * CHARACTERS])["input_ids"] for kind in kinds]
    found = [read[i % len(kinds)][i // len(kinds) * length :][:length] for i in range(count)]
    if any(len(text) < length for text in found):
        raise ConfigError(
            f"found too little text for {count} of {length} tokens; expected fewer or shorter ones: lower --texts"
        )
    return found


def _python() -> list[str]:
    """The language's reference, and modules of the standard library."""
    prose = "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    return [prose, "\n\n".join(inspect.getsource(m) for m in (argparse, difflib, textwrap, json.decoder))]


def _ours() -> list[str]:
    """Our source, and our documentation where this is a repository."""
    source = sorted(Path(turnwise.__file__).parent.glob("*/*.py"))
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    groups = [source, [path for path in documents if path.is_file()]]
    return ["\n\n".join(path.read_text() for path in group) for group in groups if group]
