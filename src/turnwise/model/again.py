"""Layers that keep only their input for the backward pass and are computed again there: less memory for more time.

A row's slots are made anew with them, from the same recorded keys, so that nothing about an event is decided twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from turnwise.errors import ModelError
from turnwise.model.load import Policy


def compute_again(policy: Policy) -> None:
    """From here on, whenever gradients are asked for."""
    for layer in _layers(policy):
        layer.forward = _again(layer.forward)


def _layers(policy: Policy) -> nn.ModuleList:
    count = policy.model.config.get_text_config().num_hidden_layers
    found = [m for m in policy.model.base_model.children() if isinstance(m, nn.ModuleList) and len(m) == count]
    if len(found) != 1:
        raise ModelError(
            f"found {len(found)} lists of {count} layers in {type(policy.model).__name__}; expected one for "
            "train.checkpoint_activations: turn it off for this model"
        )
    return found[0]


def _again(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return run
