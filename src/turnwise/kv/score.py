"""How much a key of the region matters to the reference queries."""

from __future__ import annotations

from torch import Tensor

from turnwise.kv.part import Gist


def score(inside: Gist) -> Tensor:
    """mean_i p_ij^2 over queries i, p the attention within the region: two queries that give a key .5 and .1 give .13.

    Squares prefer a key that few queries need much to one that many need a little.
    """
    return inside.square_KC / inside.mass_KN1.shape[-2]
