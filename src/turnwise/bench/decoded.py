"""Sessions that hold long texts: how fast they decode together before and after their caches are compacted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from statistics import median

from turnwise.bench.compaction import Options
from turnwise.bench.report import Value
from turnwise.bench.texts import texts
from turnwise.engine import LocalEngine
from turnwise.model import Policy
from turnwise.types import Compaction, Sampling, Session, Settings

ROUNDS, WRITTEN = 3, 16
"""Timed rounds before and after, and tokens that each session writes in one."""


def decode(policy: Policy, options: Options, say: Callable[[str], None]) -> dict[str, Value]:
    """The case `decode/SESSIONS`: tokens a second with the whole cache and the compacted one; what an event took."""
    return asyncio.run(_decode(policy, options, say))


async def _decode(policy: Policy, options: Options, say: Callable[[str], None]) -> dict[str, Value]:
    """Each session compacts `region` tokens to the second of the ratios, and keeps what stands around them."""
    engine = LocalEngine(policy)
    start, end = options.prefix, options.prefix + options.region
    sessions, how = [], Settings(ratio=options.middle)
    for seed, ids in enumerate(texts(policy.tokenizer, options.sessions, end + options.suffix)):
        session = await engine.open([], Sampling(), seed=seed, compaction=Compaction())
        await engine.step(session, ids, 1)
        sessions.append(session)
    before = await _rounds(engine, sessions)
    say(f"{options.sessions} sessions with the whole cache: {median(before):.1f} tokens/s")
    began = time.perf_counter()
    await asyncio.gather(*(engine.compact(session, (start, end), how) for session in sessions))
    ms = 1000 * (time.perf_counter() - began) / len(sessions)
    after = await _rounds(engine, sessions)
    say(f"{options.sessions} sessions with the compacted cache: {median(after):.1f} tokens/s")
    figures: dict[str, Value] = {"name": f"decode/{options.sessions}", "ms": ms}
    for name, rates in (("whole_tok_s", before), ("compacted_tok_s", after)):
        figures |= {name: median(rates), f"{name}_min": min(rates), f"{name}_max": max(rates)}
    return figures


async def _rounds(engine: LocalEngine, sessions: Sequence[Session]) -> list[float]:
    """Tokens a second of each round, after one that does not count."""
    found = []
    for _ in range(1 + ROUNDS):
        began = time.perf_counter()
        said = await asyncio.gather(*(engine.step(session, [session.ids[-1]], WRITTEN) for session in sessions))
        found.append(sum(len(one.ids) for one in said) / (time.perf_counter() - began))
    return found[1:]
