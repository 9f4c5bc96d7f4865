"""Log-probabilities and entropies of chosen tokens, without a row x vocabulary matrix.

Only positions that predict a chosen token are projected on the vocabulary, in chunks that are computed again in the
backward pass. Shapes: N tokens of a row, W hidden width, E entries, V vocabulary, S support.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Head = Callable[[Tensor], Tensor]
"""hidden_NW -> logits_NV"""

CHUNK_NUMBERS = 2**25
"""Logits held at once: 128 MiB in fp32."""


class Scores(NamedTuple):
    """Of each entry's token, under the distribution it was drawn from; `plain` at temperature 1 over the same tokens,
    without gradient."""

    logp_E: Tensor
    entropy_E: Tensor
    plain_logp_E: Tensor
    plain_entropy_E: Tensor


class Support(NamedTuple):
    """The tokens each entry was drawn from: ids_ES where held_ES; a row without any means the whole vocabulary."""

    ids_ES: Tensor
    held_ES: Tensor


def score(
    hidden_NW: Tensor,
    head: Head,
    source_E: Tensor,
    target_E: Tensor,
    temperature_E: Tensor,
    support: Support | None = None,
    vocab: int = 0,
) -> Scores:
    """Score targets predicted at `source` positions; entries come sorted by source."""
    size = max(1, CHUNK_NUMBERS // max(vocab, 1))
    parts = []
    for start in range(0, len(source_E), size):
        cut = slice(start, start + size)
        held = None if support is None else Support(support.ids_ES[cut], support.held_ES[cut])
        args = (hidden_NW, head, source_E[cut], target_E[cut], temperature_E[cut], held)
        whole = len(source_E) <= size or not torch.is_grad_enabled()
        parts.append(_chunk(*args) if whole else checkpoint(_chunk, *args, use_reentrant=False))
    if not parts:
        return Scores(*[hidden_NW.new_zeros(0)] * 4)
    return Scores(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _chunk(
    hidden_NW: Tensor, head: Head, source_E: Tensor, target_E: Tensor, temperature_E: Tensor, support: Support | None
) -> Scores:
    places, which_E = torch.unique_consecutive(source_E, return_inverse=True)
    logits_EV = head(hidden_NW[places]).float()[which_E]
    drawn = _within(logits_EV / temperature_E[:, None], target_E, support)
    with torch.no_grad():
        plain = drawn if bool((temperature_E == 1.0).all()) else _within(logits_EV, target_E, support)
    return Scores(*drawn, *(x.detach() for x in plain))


def _within(logits_EV: Tensor, target_E: Tensor, support: Support | None) -> tuple[Tensor, Tensor]:
    """Log-probability of the target and entropy, over the support where there is one."""
    target = logits_EV.gather(1, target_E[:, None])[:, 0]
    if support is None:
        return _of(target, logits_EV)
    free_E = ~support.held_ES.any(1)
    inside_ES = logits_EV.gather(1, support.ids_ES).masked_fill(~support.held_ES, float("-inf"))
    if not bool(free_E.any()):
        return _of(target, inside_ES)
    tight = _of(target, inside_ES.masked_fill(free_E[:, None], 0.0))
    loose = _of(target, logits_EV)
    return torch.where(free_E, loose[0], tight[0]), torch.where(free_E, loose[1], tight[1])


def _of(target_E: Tensor, logits_EV: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of the target and the distribution's exact entropy; -inf logits count for nothing."""
    logz_E = logits_EV.logsumexp(1)
    logp_EV = logits_EV - logz_E[:, None]
    entropy_E = -(logp_EV.exp() * logp_EV.masked_fill(logp_EV == float("-inf"), 0.0)).sum(1)
    return target_E - logz_E, entropy_E
