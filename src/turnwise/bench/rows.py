"""Attention over one packed row on the CPU, forward and backward, beside torch's attention under a dense mask.

`ns_pair` is the time of forward and backward for one visible pair and head: where it is alike for all rows, a row costs
what is visible in it and not its square.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from turnwise.config.run import Count, Positive
from turnwise.config.section import Section

if TYPE_CHECKING:
    from torch import Tensor

    from turnwise.bench.report import Value
    from turnwise.types import Ids

WAYS = ("", "dense_")
"""By what is visible, under a dense mask: what the names of their figures begin with."""
FIGURES = ("ms_forward", "ms_both")
"""Forward alone, and forward and backward; each with its lowest and highest."""


class Options(Section):
    """The row and the layer; by default one of SmolLM2-135M's."""

    tokens: Positive = 4096
    """Tokens of the row."""
    heads: Positive = 9
    """Query heads."""
    kv_heads: Positive = 3
    """Key/value heads."""
    width: Positive = 64
    """Width of a head."""
    repeats: Positive = 7
    """Timed repeats; the median counts."""
    threads: Count = 0
    """CPU threads for torch; 0 leaves torch's own choice."""
    seed: int = 0
    """Seed of queries, keys and values."""


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Value]]:
    """A case a row."""
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    cases = []
    for name, visible_until in shapes(options.tokens).items():
        say(f"{name}: {len(visible_until)} tokens")
        cases.append(_case(name, visible_until, options))
    return cases


def view(cases: Sequence[Mapping[str, Value]]) -> Sequence[Mapping[str, Value]]:
    """The same for the terminal."""
    return cases


def shapes(tokens: int) -> dict[str, Ids]:
    """Many trees of 128 tokens; one long tree; one whose first two fifths are read by 40 branches."""
    import numpy as np

    n = np.arange(tokens, dtype=np.int32)
    trunk = tokens * 2 // 5
    branch = -(-(tokens - trunk) // 40)
    ends = trunk + branch * ((n - trunk) // branch + 1)
    return {
        "small_trees": np.minimum((n // 128 + 1) * 128, tokens).astype(np.int32),
        "one_long": np.full(tokens, tokens, np.int32),
        "forks_40": np.where(n < trunk, tokens, np.minimum(ends, tokens)).astype(np.int32),
    }


def _case(name: str, visible_until: Ids, o: Options) -> dict[str, Value]:
    import torch

    from turnwise.model.attention import row_attention
    from turnwise.rows import pairs

    draws = torch.Generator().manual_seed(o.seed)
    q, k, v, grad = (
        torch.randn(1, len(visible_until), heads, o.width, generator=draws).transpose(1, 2)
        for heads in (o.heads, o.kv_heads, o.kv_heads, o.heads)
    )
    ways = (row_attention(visible_until, torch.device("cpu")), _dense(visible_until))
    case: dict[str, Value] = {"name": name, "pairs": pairs(visible_until), "square": len(visible_until) ** 2}
    for way, attend in zip(WAYS, ways, strict=True):
        for figure, backward in zip(FIGURES, (False, True), strict=True):
            times = [_ms(attend, [q, k, v], grad, backward) for _ in range(o.repeats + 1)][1:]
            case |= {f"{way}{figure}": median(times), f"{way}{figure}_min": min(times)}
            case[f"{way}{figure}_max"] = max(times)
    ratios = {
        f"vs_{WAYS[1]}{figure[3:]}": _number(case, WAYS[1] + figure) / _number(case, figure) for figure in FIGURES
    }
    return case | ratios | {"ns_pair": _number(case, "ms_both") * 1e6 / pairs(visible_until) / o.heads}


def _number(case: Mapping[str, Value], figure: str) -> float:
    value = case[figure]
    assert isinstance(value, float)
    return value


def _dense(visible_until: Ids) -> Callable[..., Tensor]:
    import numpy as np
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    rows = np.arange(len(visible_until))
    mask = torch.from_numpy((rows[None] <= rows[:, None]) & (rows[:, None] < visible_until[None]))
    return lambda _, q, k, v, scale: sdpa(q, k, v, mask, scale=scale, enable_gqa=True)


def _ms(attend: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor, backward: bool) -> float:
    import torch

    leaves = [x.detach().requires_grad_(backward) for x in inputs]
    began = time.perf_counter()
    out = attend(0, *leaves, leaves[0].shape[-1] ** -0.5)
    if backward:
        torch.autograd.grad(out, leaves, grad)
    return (time.perf_counter() - began) * 1e3
