"""POST /rsa_generate: recursive self-aggregation over one prompt (Venkatraman et al., 2025).

n candidates; in each round n times: k of them, drawn without replacement, are shown beside the prompt and a better
one is asked for; the answer is the candidate that most agree with, or one at random. k = 1 is self-refinement.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, model_validator

from turnwise.engine.wire import Whole
from turnwise.serve.ask import render, together
from turnwise.serve.bodies import Drawn, Positive, Usage, sampling
from turnwise.serve.chat import ChatMessage
from turnwise.serve.problem import ERRORS, documented
from turnwise.serve.reply import Reply
from turnwise.serve.server import Server, client_of, of, seed_of
from turnwise.types import Completion, Listener, Sampling

router = APIRouter(tags=["evaluation"])
BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SEVERAL = (
    "Here are {k} attempts at it. Some may be wrong. Take what is right in them and write one better, complete answer."
)
ALONE = "Here is an attempt at it. It may be wrong. Check it and write a better, complete answer."


class RsaBody(Drawn):
    """A question, and how many candidates, shown together, rounds."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    model: str | None = None
    n: Annotated[int, Field(ge=1, le=64), Whole] = 16
    k: Annotated[int, Field(ge=1, le=64), Whole] = 4
    rounds: Annotated[int, Field(ge=0, le=32), Whole] = 10
    max_tokens: Positive | None = None
    choose: Literal["majority", "random"] = "majority"

    @model_validator(mode="after")
    def _drawable(self) -> Self:
        if self.k > self.n:
            raise ValueError(f"found k {self.k} above n {self.n}; expected at most n: none is drawn twice")
        return self


class Candidate(BaseModel):
    """One answer of the last round."""

    text: str
    answer: str
    token_ids: list[int]
    mean_logprob: float


class RsaAnswer(BaseModel):
    """The answer chosen, those it was chosen from, and what all rounds took."""

    final_text: str
    answer: str
    votes: int
    candidates: list[Candidate]
    rounds: int
    total_time: float
    usage: Usage


Sample = Callable[[list[list[dict[str, Any]]], int], Coroutine[Any, Any, list[tuple[str, Completion]]]]
"""Conversations and a first seed to one reply each."""


@router.post("/rsa_generate", responses=documented(*ERRORS))
async def rsa_generate(body: RsaBody, request: Request) -> RsaAnswer:
    """Answer, then aggregate the answers, round by round."""
    server, began = of(request), time.perf_counter()
    server.check_model(body.model)
    asked = [message.model_dump(exclude_none=True) for message in body.messages]
    how = sampling(body, server, max_tokens=body.max_tokens, top=0, ends=True)
    seed, used = seed_of(body.seed), Counter(prompt=0, completion=0)
    sample = _sampler(server, how, client_of(request), used)
    with server.admit():
        last = await server.attend(request, aggregate(asked, sample, body.n, body.k, body.rounds, seed))
    candidates = [_candidate(text, said) for text, said in last]
    chosen, votes = choose([c.answer for c in candidates], body.choose, seed)
    return RsaAnswer(
        final_text=candidates[chosen].text,
        answer=candidates[chosen].answer,
        votes=votes,
        candidates=candidates,
        rounds=body.rounds,
        total_time=time.perf_counter() - began,
        usage=Usage.of(used["prompt"], used["completion"]),
    )


async def aggregate(
    asked: list[dict[str, Any]], sample: Sample, n: int, k: int, rounds: int, seed: int
) -> list[tuple[str, Completion]]:
    """The candidates of the last round."""
    draw = random.Random(seed)
    population = await sample([asked] * n, seed)
    for number in range(1, rounds + 1):
        subsets = [draw.sample([text for text, _ in population], k) for _ in range(n)]
        population = await sample([[*asked, prompt(shown)] for shown in subsets], seed + number * n)
    return population


def prompt(shown: Sequence[str]) -> dict[str, Any]:
    """The message that asks to aggregate some candidates."""
    head = ALONE if len(shown) == 1 else SEVERAL.format(k=len(shown))
    attempts = [f"Attempt {n}:\n{text.strip()}" for n, text in enumerate(shown, 1)]
    return {"role": "user", "content": "\n\n".join([head, *attempts])}


def final(text: str) -> str:
    """What is compared: the last \\boxed{...}, else the last number, else the last line."""
    found = BOXED.findall(text) or NUMBER.findall(text) or text.strip().splitlines() or [""]
    return str(found[-1]).strip()


def choose(answers: Sequence[str], by: str, seed: int) -> tuple[int, int]:
    """The place of the answer chosen and how many agree; of equally many votes the earliest wins."""
    counts = Counter(answers)
    if by == "random":
        place = random.Random(seed).randrange(len(answers))
    else:
        place = max(range(len(answers)), key=lambda i: (counts[answers[i]], -i))
    return place, counts[answers[place]]


def _sampler(server: Server, how: Sampling, client: str, used: Counter[str]) -> Sample:
    async def sample(talks: list[list[dict[str, Any]]], seed: int) -> list[tuple[str, Completion]]:
        prompts = [render(server, talk, None) for talk in talks]

        def start(n: int) -> Callable[[Listener], Coroutine[Any, Any, Completion]]:
            return lambda listen: server.complete(prompts[n], how, seed + n, client, listen=listen)

        said = await together([start(n) for n in range(len(prompts))])
        server.meters.prompt_tokens.inc(sum(map(len, prompts)))
        server.meters.sampled_tokens.inc(sum(len(c.ids) for c in said))
        used.update(prompt=sum(map(len, prompts)), completion=sum(len(c.ids) for c in said))
        return [(_text(server, p, c), c) for p, c in zip(prompts, said, strict=True)]

    return sample


def _text(server: Server, ids: list[int], said: Completion) -> str:
    return Reply(server, ids, ids=said.ids.tolist()).message(said.stopped_by)["content"] or ""


def _candidate(text: str, said: Completion) -> Candidate:
    mean = float(said.logprobs.mean()) if len(said.logprobs) else 0.0
    return Candidate(text=text, answer=final(text), token_ids=said.ids.tolist(), mean_logprob=mean)
