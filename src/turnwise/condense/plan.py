"""A config to the condenser that it names, and to one history an episode."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from renderers import Renderer
from renderers.base import Tokenizer

from turnwise.condense.ask import AGENT
from turnwise.condense.chunk import Starts
from turnwise.condense.drop import Drop
from turnwise.condense.endpoint import EndpointWriter
from turnwise.condense.history import History
from turnwise.condense.keywords import Keywords
from turnwise.condense.model import Model
from turnwise.condense.shared import Shared
from turnwise.condense.written import Condenser
from turnwise.config.condense import CondenseConfig
from turnwise.errors import ModelError
from turnwise.text.pieces import encode, tokenizer_of
from turnwise.types import Engine, Sampling


@dataclass(frozen=True, slots=True)
class Condensation:
    """How all episodes of a run condense; `starts` are the policy's tokens."""

    config: CondenseConfig
    condenser: Condenser
    starts: Starts

    @property
    def masked(self) -> tuple[str, ...]:
        """Agents whose turns are not trained on."""
        return () if self.config.trains else (AGENT,)

    def history(self, group: Shared, group_seed: int, seed: int) -> History:
        """For one episode: what it asks for is shared with its group, or with nobody; seeds go with that."""
        shared, own = (group, group_seed) if self.config.shared else (group.apart(), seed)

        def seeds(text: str) -> int:
            return int.from_bytes(hashlib.blake2b(f"{own}:{text}".encode(), digest_size=8).digest()) >> 1

        return History(self.config, self.condenser, self.starts, shared, seeds)


def starts_of(tokenizer: Tokenizer) -> Starts:
    """Where a tokenizer's tokens begin in a text."""

    def starts(text: str) -> Sequence[int]:
        found: list[int] = encode(tokenizer, text)[1].tolist()
        return found

    return starts


def condensation(config: CondenseConfig, policy: Renderer, engine: Engine, renderer: Renderer) -> Condensation:
    """`engine` and `renderer` are those of the model that condenses, the policy's own where that is the policy."""
    starts, theirs = (starts_of(tokenizer_of(r)) for r in (policy, renderer))
    return Condensation(config, _condenser(config, engine, renderer, theirs), starts)


def _condenser(config: CondenseConfig, engine: Engine, renderer: Renderer, starts: Starts) -> Condenser:
    if config.type == "keywords":
        return Keywords(starts)
    if config.type == "drop":
        return Drop(starts)
    writer = config.model
    if writer.source == "endpoint":
        return EndpointWriter(writer, starts_of(_tokenizer(writer.tokenizer)) if writer.tokenizer else starts)
    sampling = Sampling(writer.temperature, stop_ids=tuple(renderer.get_stop_token_ids()))
    return Model(engine, renderer, starts, sampling, writer.reasoning_tokens, writer.source == "policy")


def _tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a model that runs elsewhere."""
    from transformers import AutoTokenizer

    try:
        found: Any = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"found rollout.condense.model.tokenizer {name!r}, which cannot be read: {error}; expected a folder or a "
            "hub name that this machine can reach, or leave it out"
        ) from error
    return cast(Tokenizer, found)
