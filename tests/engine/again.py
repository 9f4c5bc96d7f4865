"""What an engine should have computed: the same conversation on the plainest cache there is, a stretch at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from turnwise.bench.cached import Cache
from turnwise.kv.queries import SOURCES
from turnwise.model import Policy
from turnwise.testing import tiny_model
from turnwise.types import Event, Settings


def sharp(seed: int = 0) -> Policy:
    """A random model whose attention and predictions are decided, so that a wrong cache shows."""
    policy = tiny_model(seed)
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.dim() > 1:
                weight.mul_(3.0)
    return policy


@torch.no_grad()
def replayed(policy: Policy, ids: Sequence[int], events: Sequence[Event], settings: Settings) -> np.ndarray:
    """The log-probability of each token but the first, events chosen anew where they struck."""
    cache, hidden, done = Cache.empty(policy), [], 0
    for event in [*events, None]:
        until = len(ids) - 1 if event is None else event.at
        if until > done:
            hidden.append(cache.read(list(ids[done:until])))
            done = until
        if event is None:
            continue
        if event.method == "delete_reread":
            cache = Cache.empty(policy)
            cache.read([ids[t] for t in event.queries])
        else:
            cache.compact((event.start, event.end), SOURCES[settings.source], settings)
    logp = policy.head(torch.cat(hidden)).log_softmax(-1)
    return logp[torch.arange(len(logp)), torch.tensor(ids[1:])].numpy()
