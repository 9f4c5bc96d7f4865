"""What is said of the config comes from its classes."""

from __future__ import annotations

from pathlib import Path

from turnwise.config import RunConfig
from turnwise.config.docs import document
from turnwise.config.keys import parts


def test_the_page_in_docs_is_up_to_date():
    assert (Path(__file__).parents[2] / "docs" / "config.md").read_text() == document()


def test_every_key_has_a_meaning():
    assert [key.name for part in parts(RunConfig) for key in part.keys if not key.text] == []


def test_sections_come_outermost_first():
    names = [(part.name, part.tag) for part in parts(RunConfig)][:13]
    expected = [
        ("", None),
        ("tiny", None),
        ("env", None),
        ("env.sampling", None),
        *[(f"env.echo{below}", None) for below in ("", ".system", ".user", ".tool", ".assistant", ".filter")],
        ("advantage", None),
        ("oracle", None),
    ]
    assert names == [*expected, ("loss", "dppo")]


def test_the_default_of_several_sections_is_marked():
    assert [part.tag for part in parts(RunConfig) if part.tag and part.usual] == ["dppo"]
