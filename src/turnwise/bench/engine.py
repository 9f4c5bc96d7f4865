"""Tokens a second of the built-in engine beside transformers' `generate` and a vLLM server with prefix caching.

`decode_N` writes N replies to N short prompts; `conversations` holds several conversations over turns, which `generate`
has to read from the start each turn. All have the same prompts and token counts; replies are sampled at temperature 1.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from turnwise.config.run import Count, Positive
from turnwise.config.section import Section
from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.bench.engine_ways import Work
    from turnwise.bench.measure import Measured, Variant
    from turnwise.bench.report import Value

NAMES = ("turnwise", "generate", "vllm")
"""The built-in engine, transformers, vLLM: the first part of the names of their figures."""
FIGURES = ("tok_s", "tok_s_min", "tok_s_max", "peak_mb")
"""Of each: sampled tokens a second, the reading of prompts included, and memory (not of vLLM's server)."""
Dtype = Literal["float32", "bfloat16"]
SUFFIX: Mapping[str, str] = {"float32": "", "bfloat16": "_bf16"}
CONTEXT = 2048
"""vLLM's contexts are multiples of this: it compiles anew for every other one."""
CONVERSATIONS = "conversations"


class Options(Section):
    """What is measured, and how often."""

    model: str = "smollm2"
    """`smollm2`, `tiny` (random weights; seconds instead of minutes), a folder, or a hub name; on the CPU."""
    dtypes: list[Dtype] = ["float32", "bfloat16"]
    """Cases of bfloat16 end in `_bf16`."""
    batches: list[Positive] = [1, 8, 32]
    """A case `decode_N` each; an empty list leaves them out."""
    prompt: Positive = 32
    """Tokens each prompt of `decode_N` has."""
    tokens: Positive = 64
    """Tokens each reply of `decode_N` has."""
    conversations: Count = 16
    """Conversations held at once; 0 leaves the case out."""
    turns: Positive = 8
    """Turns of a conversation."""
    read: Positive = 150
    """New tokens a turn reads."""
    written: Positive = 64
    """Tokens a turn writes."""
    generate: bool = True
    """Measure transformers' `generate` too."""
    vllm: str = ".venv-vllm"
    """The virtual environment that holds vLLM (`make test-vllm` builds it); not measured where there is none."""
    repeats: Positive = 3
    """Timed rounds of each; the median counts."""
    warmup: Count = 1
    """Rounds before those."""
    threads: Count = 0
    """CPU threads of each; 0 leaves torch's own choice."""
    seed: int = 0
    """Seed of the replies."""


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Value]]:
    """A case a shape and dtype."""
    from turnwise.bench import scored
    from turnwise.bench.measure import measure

    cases = []
    with tempfile.TemporaryDirectory(prefix="turnwise-bench-") as folder:
        model = scored.named(Path(folder), options.model, options.seed)
        for dtype in options.dtypes:
            with _server(options, model, dtype, Path(folder), say) as url:
                for name, work in _works(options, model, dtype).items():
                    say(f"{name}: {work.replies} replies of {work.written} tokens")
                    found = measure(_variants(options, work, url), options.repeats, options.warmup, say)
                    cases.append(case(name, found))
    return cases


def view(cases: Sequence[Mapping[str, Value]]) -> Sequence[Mapping[str, Value]]:
    """The same for the terminal."""
    return cases


def case(name: str, measured: Mapping[str, Measured]) -> dict[str, Value]:
    """All figures under stable names; those of what was not measured are null."""
    figures: dict[str, Value] = {"name": name}
    for variant in NAMES:
        found = measured.get(variant)
        values = _values(found, variant) if found else [None] * len(FIGURES)
        figures |= {f"{variant}_{figure}": value for figure, value in zip(FIGURES, values, strict=True)}
    for other in NAMES[1:]:
        ours, theirs = figures["turnwise_tok_s"], figures[f"{other}_tok_s"]
        both = isinstance(ours, float) and isinstance(theirs, float)
        figures[f"vs_{other}"] = ours / theirs if both else None  # type: ignore[operator]
    return figures


def _values(found: Measured, variant: str) -> list[float | None]:
    """In the order of FIGURES."""
    tokens, (fast, slow) = found.median("tokens"), found.spread("seconds")
    memory = None if variant == "vllm" else found.peak_mb
    return [tokens / found.median("seconds"), tokens / slow, tokens / fast, memory]


def _works(o: Options, model: str, dtype: Dtype) -> dict[str, Work]:
    """What is measured, by name."""
    from turnwise.bench.engine_ways import Work

    works = {f"decode_{batch}": (batch, 1, o.prompt, o.tokens) for batch in o.batches}
    if o.conversations:
        works[CONVERSATIONS] = (o.conversations, o.turns, o.read, o.written)
    if not works or not o.dtypes:
        raise ConfigError("found no batches and no conversations, or no dtypes; expected something to measure")
    return {name + SUFFIX[dtype]: Work(model, dtype, *shape, o.threads, o.seed) for name, shape in works.items()}


def _variants(o: Options, work: Work, url: str | None) -> list[Variant]:
    from turnwise.bench import engine_ways
    from turnwise.bench.measure import Variant

    variants = [Variant("turnwise", engine_ways.turnwise, (work,))]
    if o.generate:
        variants.append(Variant("generate", engine_ways.generate, (work,)))
    if url is not None:
        variants.append(Variant("vllm", engine_ways.vllm, (work, url)))
    return variants


@contextmanager
def _server(o: Options, model: str, dtype: Dtype, folder: Path, say: Callable[[str], None]) -> Iterator[str | None]:
    """The URL of a vLLM server, or None where there is no vLLM."""
    from turnwise.engine.vllm import Server, serving

    python = Path(o.vllm) / "bin" / "python"
    if not python.is_file():
        say(f"found no vLLM in {o.vllm}, so it is not measured: `make test-vllm` builds it")
    longest = max(o.turns * (o.read + o.written), o.prompt + o.tokens) + 1
    context = -(-longest // CONTEXT) * CONTEXT
    settings = Server(Path(_folder(model)), str(python), dtype, context, threads=o.threads or os.cpu_count() or 1)
    with serving(settings, folder / f"vllm-{dtype}.log") if python.is_file() else nullcontext() as url:
        yield url


def _folder(model: str) -> str:
    """vLLM knows no name of ours."""
    from turnwise.model import smollm2

    return str(smollm2.folder()) if model == "smollm2" else model
