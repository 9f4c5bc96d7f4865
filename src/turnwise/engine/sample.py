"""Draw one token a session from logits, each under its own parameters and its own seed.

A draw depends on the session's logits, its seed and how many tokens it has sampled, never on what else is in the batch.
Shapes: B sessions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from turnwise.errors import EngineError
from turnwise.types import Ids, Sampling, Top

COLDEST = 1e-3
"""Logits divided by less than this overflow."""
STRONGEST = 1e9
"""A bias that is larger overflows too."""
LEAST = 1e-6
"""A smaller share of the probability rounds to none."""
NEAR = 1e-6
"""A draw this close to the border between two tokens may fall differently under another rounding."""

BLOCK = 256
"""Tokens whose probabilities are summed before the cumulative distribution is taken."""
TINY = 1e-12
"""How far apart two sums of the same numbers may be in fp64."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A token, its log-probability, what could have been drawn (empty: anything), and the likeliest if asked for."""

    id: int
    logprob: float
    support: Ids
    top: Top = ()


@dataclass(frozen=True, slots=True)
class Draws:
    """One draw a session, and how many fell near a border."""

    each: list[Draw]
    near: int


NOTHING = np.zeros(0, np.int32)


def uniforms(seeds: Sequence[int], counts: Sequence[int]) -> NDArray[np.float64]:
    """The counts-th number in [0, 1) of each seed's splitmix64 stream; stateless, so that forks and replays agree."""
    with np.errstate(over="ignore"):
        z = np.array(seeds, np.uint64) + np.uint64(0x9E3779B97F4A7C15) * (np.array(counts, np.uint64) + np.uint64(1))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    u: NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return u


def check(sampling: Sampling, vocab: int) -> None:
    """Refuse parameters that describe no distribution, before anything is held or read."""
    ranges = {
        "temperature": (
            sampling.temperature,
            sampling.temperature == 0.0 or COLDEST <= sampling.temperature < np.inf,
            f"0, which is greedy, or a number of at least {COLDEST}",
        ),
        "top_p": (sampling.top_p, LEAST <= sampling.top_p <= 1.0, f"{LEAST} to 1"),
        "top_k": (sampling.top_k, sampling.top_k >= 0, "at least 0"),
        "min_p": (sampling.min_p, 0.0 <= sampling.min_p < 1.0, "at least 0 and below 1"),
        "top_logprobs": (sampling.top_logprobs, 0 <= sampling.top_logprobs <= vocab, f"0 to {vocab}"),
        "stop": (sampling.stop, all(sampling.stop), "strings of at least one character"),
        "logit_bias": (
            sampling.logit_bias,
            all(0 <= token < vocab and abs(bias) <= STRONGEST for token, bias in sampling.logit_bias),
            f"numbers of at most {STRONGEST:g} either way for tokens 0 to {vocab - 1}",
        ),
    }
    for name, (found, good, expected) in ranges.items():
        if not good:
            raise EngineError(f"found {name} {found}; expected {expected}")


def draw(logits_BV: Tensor, params: Sequence[Sampling], allowed: Sequence[Ids], u_B: NDArray[np.float64]) -> Draws:
    """Sample by inverse distribution function; `allowed` holds each session's trie node's tokens, empty for all."""
    scaled_BV = _biased(logits_BV.float(), params)
    if any(p.temperature not in (0.0, 1.0) for p in params):
        scaled_BV = scaled_BV / torch.tensor([p.temperature or 1.0 for p in params], device=logits_BV.device)[:, None]
    tight_B = np.array([p.restricted for p in params])
    if tight_B.any():
        scaled_BV = scaled_BV.masked_fill(~_kept(scaled_BV, params, allowed), float("-inf"))
    ids_B, norm_B1, near = _invert(scaled_BV, params, torch.from_numpy(u_B).to(logits_BV.device))
    logps = (scaled_BV.gather(1, ids_B[:, None]) - norm_B1)[:, 0].float().tolist()
    each = zip(ids_B.tolist(), logps, _supports(scaled_BV, tight_B), _tops(scaled_BV, norm_B1, params), strict=True)
    return Draws([Draw(*one) for one in each], near)


def _biased(logits_BV: Tensor, params: Sequence[Sampling]) -> Tensor:
    if not any(p.logit_bias for p in params):
        return logits_BV
    biased_BV = logits_BV.clone()
    for b, p in enumerate(params):
        for token, bias in p.logit_bias:
            biased_BV[b, token] += bias
    return biased_BV


def _tops(scaled_BV: Tensor, norm_B1: Tensor, params: Sequence[Sampling]) -> list[Top]:
    """The likeliest tokens that could have been drawn, as many as each row asks for."""
    most = max(p.top_logprobs for p in params)
    if not most:
        return [()] * len(params)
    values, ids = scaled_BV.topk(most, 1)
    rows = zip(ids.tolist(), (values - norm_B1).float().tolist(), params, strict=True)
    return [
        tuple((i, v) for i, v in zip(row[: p.top_logprobs], at, strict=False) if v > -np.inf) for row, at, p in rows
    ]


def _kept(scaled_BV: Tensor, params: Sequence[Sampling], allowed: Sequence[Ids]) -> Tensor:
    """Which tokens remain after choices, then min_p, top_k and top_p, in that order."""
    kept_BV = torch.ones_like(scaled_BV, dtype=torch.bool)
    for b, (p, ids) in enumerate(zip(params, allowed, strict=True)):
        row, kept = scaled_BV[b], kept_BV[b]
        if len(ids):
            kept.fill_(False)
            kept[torch.from_numpy(ids).long()] = True
        if p.min_p > 0.0:
            kept &= row >= row[kept].max() + float(np.log(p.min_p))
        if 0 < p.top_k < int(kept.sum()):
            kept &= row >= row[kept].topk(p.top_k).values[-1]
        if p.top_p < 1.0:
            kept &= _nucleus(row.masked_fill(~kept, float("-inf")), p.top_p)
    return kept_BV


def _nucleus(row_V: Tensor, top_p: float) -> Tensor:
    """The fewest likeliest tokens that hold at least `top_p`: [.5, .3, .2] with .6 keeps the first two."""
    p_V, order = row_V.softmax(0).sort(descending=True, stable=True)
    before = p_V.cumsum(0) - p_V
    return torch.zeros_like(row_V, dtype=torch.bool).scatter(0, order, before < top_p)


def _invert(scaled_BV: Tensor, params: Sequence[Sampling], u_B: Tensor) -> tuple[Tensor, Tensor, int]:
    """Tokens whose stretch of the cumulative distribution holds u, what to subtract from logits for log-probabilities,
    and how many draws fell near a border.

    First the block of tokens that holds u is found, then the token in it: few numbers are summed in fp64, and the
    vocabulary is passed over once. Probabilities [.1, .2 | .3, .4] in blocks of 2 and u = .5: block 1, which begins at
    .3, then its token 0.
    """
    top_B1 = scaled_BV.amax(1, keepdim=True)
    mass_BNS = _blocks((scaled_BV - top_B1).exp_())
    sums_BN = mass_BNS.sum(2).double().cumsum(1)
    total_B1 = sums_BN[:, -1:]
    ends_BN = sums_BN / total_B1
    aim_B1 = u_B[:, None] * ends_BN[:, -1:]
    block_B1 = _first_above(ends_BN, aim_B1)
    begin_B1 = ends_BN.gather(1, (block_B1 - 1).clamp(min=0)) * (block_B1 > 0)
    inside_BS = begin_B1 + mass_BNS.take_along_dim(block_B1[..., None], 1)[:, 0].double().cumsum(1) / total_B1
    place_B1 = _first_above(inside_BS, aim_B1)
    ids_B = (block_B1 * BLOCK + place_B1)[:, 0].clamp(max=scaled_BV.shape[1] - 1)  # beyond only where numbers are NaN
    above_B1 = inside_BS.gather(1, place_B1)
    below_B1 = torch.where(place_B1 > 0, inside_BS.gather(1, (place_B1 - 1).clamp(min=0)), begin_B1)
    edge_B1 = torch.minimum((above_B1 - aim_B1).abs(), (aim_B1 - below_B1).abs() + (below_B1 == 0.0))
    drawn_B = torch.tensor([p.temperature > 0.0 for p in params], device=u_B.device)
    near = int(((edge_B1 < NEAR) & (above_B1 < ends_BN[:, -1:] - TINY))[:, 0].logical_and(drawn_B).sum())
    if not all(p.temperature > 0.0 for p in params):
        ids_B = torch.where(drawn_B, ids_B, scaled_BV.argmax(1))
    return ids_B, top_B1 + total_B1.log(), near


def _blocks(p_BV: Tensor) -> Tensor:
    """[B, V] as [B, blocks, BLOCK], the last block filled up with zeros."""
    missing = -p_BV.shape[1] % BLOCK
    whole_BV: Tensor = pad(p_BV, (0, missing)) if missing else p_BV
    return whole_BV.view(len(p_BV), -1, BLOCK)


def _first_above(ends_BN: Tensor, aim_B1: Tensor) -> Tensor:
    """Where ascending sums first exceed the aim, at the latest where they reach their last value: never past a
    probability of zero."""
    last_B1 = torch.nextafter(ends_BN[:, -1:], torch.zeros_like(aim_B1))
    return torch.searchsorted(ends_BN, torch.minimum(aim_B1, last_B1), right=True).clamp(max=ends_BN.shape[1] - 1)


def _supports(scaled_BV: Tensor, tight_B: NDArray[np.bool_]) -> list[Ids]:
    if not tight_B.any():
        return [NOTHING] * len(tight_B)
    rows, ids = torch.nonzero(scaled_BV > float("-inf"), as_tuple=True)
    cuts = np.searchsorted(rows.cpu().numpy(), np.arange(1, len(tight_B)))
    slices = np.split(ids.cpu().numpy().astype(np.int32), cuts)
    return [s if tight else NOTHING for s, tight in zip(slices, tight_B, strict=True)]
