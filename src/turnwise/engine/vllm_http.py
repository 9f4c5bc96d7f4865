"""The engine of a vLLM server: token in, token out over /inference/v1/generate, every prompt brought whole.

Sessions exist on this side only; vLLM's prefix cache keeps a prompt from being read twice, and X-Session-ID lets a
router keep a session on one replica. Its log-probabilities are of the distribution that was drawn from only with
`--logprobs-mode processed_logprobs`; loading weights needs VLLM_SERVER_DEV_MODE=1.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.engine.remote import Caller
from turnwise.errors import EngineError, SessionGone
from turnwise.types import (
    Compaction,
    Completion,
    Event,
    Ids,
    Listener,
    Sampled,
    Sampling,
    Session,
    Settings,
    Top,
    TurnStop,
)

SLACK_S = 30.0


@dataclass(slots=True, eq=False)
class VllmSession:
    """A conversation, all of it on this side; `sampled` tokens were drawn since its seed was set."""

    url: str
    name: str
    sampling: Sampling
    seed: int
    ids: list[int]
    sampled: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class VllmHttpEngine:
    """Implements types.Engine over a vLLM server, or several that serve the same model.

    A request that may have run is never sent again: there is nothing by which vLLM would know it.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        model: str,
        *,
        token: str = "",
        timeout_s: float = 600.0,
        patience_s: float = 60.0,
        transport: Any = None,
    ) -> None:
        self.urls = [url.rstrip("/") for url in ([urls] if isinstance(urls, str) else urls)]
        self.model = model
        self.caller = Caller(token, timeout_s, patience_s, transport)
        self.version = 0
        self.tokens_sampled = 0
        self._sessions: set[VllmSession] = set()

    async def open(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        client: str = "",  # noqa: ARG002 - vLLM counts nobody
        compaction: Compaction | None = None,
    ) -> VllmSession:
        if compaction is not None:
            raise EngineError(
                "found compaction at a vLLM server; expected a session without: vLLM keeps its cache to itself; serve "
                "with `turnwise serve`"
            )
        _check(sampling)
        held = [session.url for session in self._sessions]
        url = min(self.urls, key=held.count)
        session = VllmSession(url, uuid.uuid4().hex, sampling, seed, [int(i) for i in prompt_ids])
        self._sessions.add(session)
        return session

    async def step(
        self,
        session: Session,
        new_ids: Sequence[int],
        max_tokens: int | None = None,
        *,
        whole: bool = False,
        sampling: Sampling | None = None,
        seed: int | None = None,
        deadline_s: float | None = None,
        listen: Listener | None = None,
    ) -> Completion:
        held = self._own(session)
        how = sampling or held.sampling
        _check(how)
        async with held.turn:
            self._own(session)  # it may have been closed while this step queued
            ids = [int(i) for i in new_ids] if whole else [*held.ids, *(int(i) for i in new_ids)]
            limit = how.max_tokens if max_tokens is None else max_tokens
            if not ids or limit < 1:
                raise EngineError(f"found {len(ids)} tokens to read and max_tokens {limit}; expected at least 1")
            stream, drawn = (held.seed, held.sampled) if seed is None else (seed, 0)
            said = await self._generate(held, ids, how, limit, stream, drawn, deadline_s)
            held.ids, held.sampling = [*ids, *said.ids.tolist()], how
            held.seed, held.sampled = stream, drawn + len(said.ids)
        self.tokens_sampled += len(said.ids)
        for token in zip(said.ids.tolist(), said.logprobs.tolist(), said.policy_versions.tolist(), strict=True):
            if listen is not None:
                listen(Sampled(*token))
        return said

    async def compact(
        self,
        session: Session,
        region: tuple[int, int] | None = None,  # noqa: ARG002
        settings: Settings | None = None,  # noqa: ARG002
    ) -> Event | None:
        self._own(session)
        raise EngineError("found a call for compaction at a vLLM server, which keeps its cache to itself")

    async def fork(self, session: Session, *, seed: int) -> VllmSession:
        held = self._own(session)
        async with held.turn:
            branch = VllmSession(held.url, uuid.uuid4().hex, held.sampling, seed, list(held.ids))
            self._sessions.add(branch)
            return branch

    async def close(self, session: Session) -> None:
        self._sessions.remove(self._own(session))

    async def pause(self) -> None:
        await self._all("/pause?mode=keep", {})

    async def resume(self) -> None:
        await self._all("/resume", {})

    async def load(self, folder: Path, version: int) -> None:
        """By vLLM's development routes: reload from the folder, then forget every cached prefix."""
        await self._all("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        await self._all("/update_weight_version", {"new_version": str(version)})
        await self._all("/reset_prefix_cache?reset_running_requests=true", {})
        self.version = version

    def stats(self) -> Mapping[str, float]:
        gauges = {"sessions": len(self._sessions), "version": self.version, "tokens_sampled": self.tokens_sampled}
        return {name: float(value) for name, value in (self.caller.counts | gauges).items()}

    async def aclose(self) -> None:
        """Forget all sessions and close the connections."""
        self._sessions.clear()
        await self.caller.close()

    def _own(self, session: Session) -> VllmSession:
        if not isinstance(session, VllmSession) or session not in self._sessions:
            raise SessionGone("found a session this engine does not hold (closed, or another engine's); open a new one")
        return session

    async def _generate(
        self,
        held: VllmSession,
        ids: list[int],
        how: Sampling,
        limit: int,
        seed: int,
        drawn: int,
        deadline_s: float | None,
    ) -> Completion:
        version = self.version
        body = {"model": self.model, "token_ids": ids, "sampling_params": params(how, limit, seed + 1_000_003 * drawn)}
        wait = None if deadline_s is None else deadline_s + SLACK_S
        headers = {"X-Session-ID": held.name}
        url = f"{held.url}/inference/v1/generate"
        answer = await self.caller.post(url, body, again=False, wait_s=wait, headers=headers)
        return completion(answer["choices"][0], how, version)

    async def _all(self, route: str, body: Mapping[str, Any]) -> None:
        await asyncio.gather(*(self.caller.post(url + route, body, again=True) for url in self.urls))


def params(how: Sampling, limit: int, seed: int) -> dict[str, Any]:
    """vLLM's sampling parameters; a seed for each step, since its streams begin anew with every request."""
    return {
        "temperature": how.temperature,
        "top_p": how.top_p,
        "top_k": how.top_k or -1,
        "min_p": how.min_p,
        "max_tokens": limit,
        "seed": seed % 2**63,
        "stop_token_ids": list(how.stop_ids),
        "stop": list(how.stop),
        "logit_bias": {str(token): bias for token, bias in how.logit_bias},
        "ignore_eos": True,
        "logprobs": how.top_logprobs + 1,  # the sampled one is the first of them
        "skip_special_tokens": False,
        "detokenize": bool(how.stop),
    }


def completion(choice: Mapping[str, Any], how: Sampling, version: int) -> Completion:
    """A choice of the answer as our noun; the stop token is told apart by being the last."""
    ids = np.array(choice["token_ids"], np.int32)
    content = choice["logprobs"]["content"]
    if len(content) != len(ids):
        raise EngineError(f"found {len(content)} log-probabilities for {len(ids)} tokens; expected one each")
    stopped = choice["finish_reason"] == "stop"
    last = int(ids[-1]) if len(ids) else None
    return Completion(
        ids=ids,
        logprobs=np.array([token["logprob"] for token in content], np.float32),
        policy_versions=_versions(choice, len(ids), version),
        stop_reason=TurnStop.STOP if stopped else TurnStop.LENGTH,
        stopped_by=last if stopped and last in how.stop_ids else choice.get("stop_reason"),
        top=tuple(_top(token, how.top_logprobs) for token in content) if how.top_logprobs else (),
    )


def _versions(choice: Mapping[str, Any], count: int, version: int) -> Ids:
    """Of the weights each token was sampled with, where the server tells: weights may change while it samples."""
    found = np.full(count, version, np.int32)
    for span in choice.get("weight_versions") or ():
        if str(span["version"]).isdigit():
            found[span["start"] : span["end"]] = int(span["version"])
    return found


def _top(token: Mapping[str, Any], most: int) -> Top:
    """The likeliest: vLLM puts the sampled token first, however likely it is."""
    found = sorted(token["top_logprobs"], key=lambda t: -float(t["logprob"]))
    return tuple((_id(t), float(t["logprob"])) for t in found[:most])


def _id(token: Mapping[str, Any]) -> int:
    """A number, or what older servers say instead: token_id:17 is 17."""
    return int(token["token_id"] if "token_id" in token else token["token"].removeprefix("token_id:"))


def _check(sampling: Sampling) -> None:
    """Refuse what vLLM would sample otherwise than it is asked for."""
    if sampling.choices:
        raise EngineError(
            f"found {len(sampling.choices)} choices at a vLLM server; expected none: it has no rule that allows only "
            "some token sequences; serve with `turnwise serve`"
        )
