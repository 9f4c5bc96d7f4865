"""An unknown key in, the key that was probably meant out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

from turnwise.config.keys import Part

LIKENESS = 1.1
"""Least likeness of the full key plus likeness of its last word, each 0 to 1, to be worth suggesting."""


def nearest_word(found: str, words: Iterable[str]) -> str | None:
    """The most similar of a few words, if any is similar."""
    return next(iter(get_close_matches(found, list(words), n=1)), None)


def nearest_key(unknown: str, known: list[Part], tag: str | None = None) -> str | None:
    """The likeliest full key anywhere: "lr" and "train.lrr" are train.lr. With a tag, only keys that tag allows."""
    names = {k.name for p in known if tag is None or p.tag in (None, tag) for k in p.keys}
    names |= {p.name for p in known if p.name}
    best = max(names - {unknown}, key=lambda name: (_likeness(unknown, name), name))
    return best if _likeness(unknown, best) >= LIKENESS else None


def owner(unknown: str, known: list[Part]) -> str | None:
    """The tag under which this key would be allowed: loss.kl_tau belongs to dppo."""
    return next((p.tag for p in known if p.tag for k in p.keys if k.name == unknown), None)


def _likeness(a: str, b: str) -> float:
    """Of the whole and of the last word, so that "lr" finds train.lr and "trian.lr" does too."""
    last = SequenceMatcher(None, a.rpartition(".")[2], b.rpartition(".")[2]).ratio()
    return last + SequenceMatcher(None, a, b).ratio()
