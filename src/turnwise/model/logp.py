"""Log-probabilities and entropies of chosen tokens, without a row x vocabulary matrix.

Only positions that predict a chosen token are projected on the vocabulary, each once, in chunks that are computed again
in the backward pass. Shapes: N tokens of a row, W hidden width, E entries, M echo tokens, P distinct positions among
their sources, V vocabulary, S support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
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
    without gradient. Of echo tokens at temperature 1 over the whole vocabulary."""

    logp_E: Tensor
    entropy_E: Tensor
    plain_logp_E: Tensor
    plain_entropy_E: Tensor
    echo_logp_M: Tensor


class Support(NamedTuple):
    """The tokens each entry was drawn from: ids_ES where held_ES; a row without any means the whole vocabulary."""

    ids_ES: Tensor
    held_ES: Tensor


class Read(NamedTuple):
    """Echo tokens: nobody drew them, so they have no temperature and no support."""

    source_M: Tensor
    target_M: Tensor


def score(
    hidden_NW: Tensor,
    head: Head,
    source_E: Tensor,
    target_E: Tensor,
    temperature_E: Tensor,
    support: Support | None = None,
    vocab: int = 0,
    read: Read | None = None,
) -> Scores:
    """Score targets predicted at `source` positions; entries come sorted by source, and so does what was read."""
    size = max(1, CHUNK_NUMBERS // max(vocab, 1))
    read = read or Read(source_E[:0], target_E[:0])
    parts = []
    for cut, cut_M in _cuts(source_E, read.source_M, size):
        held = None if support is None else Support(support.ids_ES[cut], support.held_ES[cut])
        echo = Read(read.source_M[cut_M], read.target_M[cut_M])
        args = (hidden_NW, head, source_E[cut], target_E[cut], temperature_E[cut], held, echo)
        whole = len(source_E) + len(read.source_M) <= size or not torch.is_grad_enabled()
        parts.append(_chunk(*args) if whole else checkpoint(_chunk, *args, use_reentrant=False))
    if not parts:
        return Scores(*[hidden_NW.new_zeros(0)] * 5)
    return Scores(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _cuts(source_E: Tensor, source_M: Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """Chunks of at most `size` by source: sources 1 4 and 2 3 5 in threes are (1, 2 3) and (4, 5)."""
    total = len(source_E) + len(source_M)
    starts = [*range(0, total, size), total]
    entries = starts
    if len(source_M) and len(starts) > 2:  # where chunks begin is needed on the host, to slice by
        order = torch.cat([source_E, source_M]).argsort(stable=True)
        before = torch.cat([order.new_zeros(1), (order < len(source_E)).cumsum(0)])
        entries = before[starts].tolist()
    elif len(source_M):
        entries = [0, len(source_E)][: len(starts)]
    for (a, b), (start, end) in zip(pairwise(entries), pairwise(starts), strict=True):
        yield slice(a, b), slice(start - a, end - b)


def _chunk(
    hidden_NW: Tensor,
    head: Head,
    source_E: Tensor,
    target_E: Tensor,
    temperature_E: Tensor,
    support: Support | None,
    read: Read,
) -> Scores:
    places, which = torch.unique(torch.cat([source_E, read.source_M]), return_inverse=True)
    logits_PV = head(hidden_NW[places]).float()
    logits_EV, which_M = logits_PV[which[: len(source_E)]], which[len(source_E) :]
    drawn = _within(logits_EV / temperature_E[:, None], target_E, support)
    with torch.no_grad():
        plain = drawn if bool((temperature_E == 1.0).all()) else _within(logits_EV, target_E, support)
    plain_logp_E, plain_entropy_E = (x.detach() for x in plain)
    return Scores(*drawn, plain_logp_E, plain_entropy_E, _read(logits_PV, which_M, read.target_M))


def _read(logits_PV: Tensor, which_M: Tensor, target_M: Tensor) -> Tensor:
    """Log-probabilities of what was read, without a row of logits for each."""
    if not len(which_M):
        return logits_PV.new_zeros(0)
    return logits_PV[which_M, target_M] - logits_PV.logsumexp(1)[which_M]


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
