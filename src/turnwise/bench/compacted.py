"""Texts read with a whole cache and with compacted ones: how far the two differ, and what an event costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median

import torch
from torch import Tensor

from turnwise.bench.cached import Cache
from turnwise.bench.compaction import Options, Plan
from turnwise.bench.decoded import decode
from turnwise.bench.measure import Figures, Result, extra_mb
from turnwise.bench.report import Value
from turnwise.bench.texts import texts
from turnwise.config.run import TinyConfig
from turnwise.kv.queries import SOURCES
from turnwise.model import Policy, load, tiny
from turnwise.types import Settings

FORWARD = 256
"""Tokens of the forward pass an event is compared with."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text, its cache after prefix, region and suffix, and what the model then says of the rest [C, vocabulary]."""

    ids: list[int]
    cache: Cache
    logp_CV: Tensor
    forward_ms: float


@torch.no_grad()
def measure(options: Options, plans: Sequence[Plan], say: Callable[[str], None]) -> list[dict[str, Value]]:
    """Every plan on every text, one text after the other, so that one cache is held at a time."""
    if options.threads:
        torch.set_num_threads(options.threads)
    policy = _policy(options.model)
    length = options.prefix + options.region + options.suffix + options.continuation
    found: dict[Plan, list[Figures]] = {plan: [] for plan in plans}
    for number, ids in enumerate(texts(policy.tokenizer, options.texts, length), 1):
        text = _read(policy, ids, options)
        for plan in plans:
            found[plan].append(_figures(text, plan, options))
            say(f"text {number}/{options.texts}: {plan.name} kl {found[plan][-1]['kl']:.4f}")
    decoded = [decode(policy, options, say)] if options.sessions else []
    return [case(plan.name, figures) for plan, figures in found.items()] + decoded


def case(name: str, found: Sequence[Figures]) -> dict[str, Value]:
    """Means of quality and medians of cost over texts, with their spread."""
    figures: dict[str, Value] = {"name": name, "texts": len(found)}
    for figure, middle in (("kl", fmean), ("nll_increase", fmean), ("residual", fmean), ("ms", median)):
        values = [one[figure] for one in found]
        figures |= {figure: middle(values), f"{figure}_min": min(values), f"{figure}_max": max(values)}
    costs = {key: [one[key] for one in found if key in one] for key in ("forward_ms", "peak_mb", "kept")}
    figures |= {key: median(values) if values else None for key, values in costs.items()}
    figures["event_vs_forward"] = median(one["ms"] / one["forward_ms"] for one in found)
    return figures


def _policy(name: str) -> Policy:
    """On the CPU, in fp32."""
    if name != "tiny":
        return load(name, device="cpu")
    return tiny.build([], TinyConfig(), 0, device="cpu")


def _read(policy: Policy, ids: list[int], options: Options) -> Text:
    """Read a text with the whole cache, and time forward passes beside it."""
    cache = Cache.empty(policy)
    cache.read(ids[: -options.continuation])
    passes = [_timed(lambda: policy.head(Cache.empty(policy).read(ids[:FORWARD])))[1] for _ in range(3)]
    return Text(ids, cache, _logp(cache.fork(), ids[-options.continuation :]), median(passes))


def _figures(text: Text, plan: Plan, options: Options) -> Figures:
    """Compact by plan and read on."""
    rest = text.ids[-options.continuation :]
    (cache, costs), extra = extra_mb(lambda: _compacted(text, plan, options))
    logp_CV = _logp(cache, rest)
    apart_C = (text.logp_CV.exp() * (text.logp_CV - logp_CV)).sum(-1)
    said = torch.tensor(rest[1:])[:, None]
    worse_C = (text.logp_CV[:-1].gather(1, said) - logp_CV[:-1].gather(1, said)).squeeze(1)
    memory = {} if extra is None or plan.events > 1 or plan.queries == "repeat" else {"peak_mb": extra}
    kept = cache.columns - len(rest) - options.prefix - options.suffix
    quality = {"kl": float(apart_C.mean()), "nll_increase": float(worse_C.mean()), "kept": float(kept)}
    return {**quality, **costs, **memory, "forward_ms": text.forward_ms}


def _compacted(text: Text, plan: Plan, options: Options) -> tuple[Cache, Figures]:
    """A cache after the plan's events, each of which spares prefix and suffix; milliseconds and residual of one."""
    cache = text.cache.fork() if plan.events == 1 else Cache.empty(text.cache.policy)
    source, settings = SOURCES[plan.queries], Settings(**plan.settings)
    spent, residuals = [], []
    for event in range(plan.events):
        if plan.events > 1:
            cache.read(text.ids[cache.next : border(plan.events, event, options)])
        inside = (options.prefix, cache.columns - options.suffix)
        again = _again(cache, text.ids[slice(*inside)]) if plan.queries == "repeat" else None
        residual, ms = _timed(partial(cache.compact, inside, source, settings, again))
        spent.append(ms)
        residuals.append(residual)
    return cache, {"ms": median(spent), "residual": residuals[-1]}


def border(events: int, event: int, options: Options) -> int:
    """Tokens read when an event strikes: 2 events over 128 | 1,024 | 256 strike at 896 and 1,408."""
    return options.prefix + options.region * (event + 1) // events + options.suffix


def _again(cache: Cache, region: list[int]) -> Cache:
    """The cache with the region read a second time, at the end."""
    second = cache.fork()
    second.read(region)
    return second


def _logp(cache: Cache, ids: list[int]) -> Tensor:
    return cache.policy.head(cache.read(ids)).log_softmax(-1)


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What it returns, and milliseconds."""
    began = time.perf_counter()
    return work(), 1000 * (time.perf_counter() - began)
