"""Three ways to hold the same conversations: our engine, transformers' `generate`, and a vLLM server."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from turnwise.bench.measure import Step
from turnwise.bench.texts import texts
from turnwise.engine import LocalEngine
from turnwise.engine.vllm_http import VllmHttpEngine
from turnwise.errors import RunError
from turnwise.model import load
from turnwise.types import Engine, Sampling


@dataclass(frozen=True, slots=True)
class Work:
    """`batch` conversations of `turns` turns, each of which reads `read` tokens and writes `written`."""

    model: str
    dtype: str
    batch: int
    turns: int
    read: int
    written: int
    threads: int
    seed: int

    @property
    def replies(self) -> int:
        return self.batch * self.turns

    def prompts(self, tokenizer: Any) -> list[list[list[int]]]:
        """What each turn of each conversation reads: real text, cut where it happens to be."""
        found = texts(tokenizer, self.batch, self.turns * self.read)
        return [[ids[at : at + self.read] for at in range(0, len(ids), self.read)] for ids in found]

    def policy(self) -> Any:
        """The model, after setting the threads of this process."""
        if self.threads:
            torch.set_num_threads(self.threads)
        return load(self.model, dtype=self.dtype, device="cpu")


def turnwise(work: Work) -> Step:
    policy = work.policy()
    engine, prompts = LocalEngine(policy), work.prompts(policy.tokenizer)
    return lambda: {"tokens": asyncio.run(_converse(engine, prompts, work))}


def vllm(work: Work, url: str) -> Step:
    prompts = work.prompts(work.policy().tokenizer)

    async def once() -> float:
        engine = VllmHttpEngine(url, "")
        try:
            return await _converse(engine, prompts, work)
        finally:
            await engine.aclose()

    return lambda: {"tokens": asyncio.run(once())}


async def _converse(engine: Engine, prompts: Sequence[Sequence[list[int]]], work: Work) -> float:
    """All conversations at once, each at its own pace; how many tokens were sampled."""

    async def one(number: int) -> int:
        sampling = Sampling(max_tokens=work.written)
        session = await engine.open([], sampling, seed=work.seed + number)
        counts = [len((await engine.step(session, new)).ids) for new in prompts[number]]
        await engine.close(session)
        return sum(counts)

    return _all(work, sum(await asyncio.gather(*(one(number) for number in range(work.batch)))))


def generate(work: Work) -> Step:
    """All conversations as one batch, with transformers' own attention and cache; they are equally long, so that
    nothing is padded. Each turn reads everything again."""
    policy = work.policy()
    prompts = torch.tensor(work.prompts(policy.tokenizer))
    policy.model.set_attn_implementation("sdpa")
    settings = {
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_new_tokens": work.written,
        "max_new_tokens": work.written,
        "pad_token_id": 0,
    }

    def step() -> dict[str, float]:
        torch.manual_seed(work.seed)
        ids, tokens = prompts[:, 0, :0], 0
        for turn in range(work.turns):
            ids = torch.cat([ids, prompts[:, turn]], 1)
            with torch.inference_mode(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of settings that transformers will rename
                said = policy.model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
            tokens += said[:, ids.shape[1] :].numel()
            ids = said
        return {"tokens": _all(work, tokens)}

    return step


def _all(work: Work, tokens: int) -> float:
    """Nobody may stop early: figures would not compare."""
    if tokens != work.replies * work.written:
        raise RunError(f"found {tokens} tokens sampled; expected {work.replies * work.written}")
    return float(tokens)
