"""Allowed replies as a trie over tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from turnwise.errors import EngineError
from turnwise.types import Ids


@dataclass(slots=True)
class Node:
    """What may follow: one child a token; a leaf ends the reply."""

    children: dict[int, Node] = field(default_factory=dict)

    @property
    def allowed(self) -> Ids:
        return np.array(sorted(self.children), np.int32)


@lru_cache(maxsize=256)
def trie(choices: tuple[tuple[int, ...], ...]) -> Node:
    """trie(((1, 2, 9), (1, 3, 9))): 1, then 2 or 3, then 9. No reply may be the beginning of another."""
    root = Node()
    for reply in choices:
        node = root
        for token in reply:
            node = node.children.setdefault(token, Node())
    ends = sum(1 for _ in _leaves(root))
    if not all(choices) or ends != len(set(choices)):
        raise EngineError(
            f"found {len(choices)} choices of which some are empty or begin others; "
            "expected token sequences that end in a stop token"
        )
    return root


def _leaves(node: Node) -> list[Node]:
    if not node.children:
        return [node]
    return [leaf for child in node.children.values() for leaf in _leaves(child)]
