"""One attention function, registered with transformers, for sampling and training alike.

What a token may see is decided by the `attend` argument a caller hands to the model's forward: the engine passes its
cache, the trainer a row's `visible_until`. Without one, attention is causal over the whole input.
Shapes: B batch, H query heads, K key/value heads, T tokens, D head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.functional import scaled_dot_product_attention as sdpa
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from turnwise.errors import ModelError
from turnwise.model.pieces import attend_pieces, pieces
from turnwise.model.slots import Slots

NAME = "turnwise"

Attend = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""(layer, q_BHTD, k_BKTD, v_BKTD, scale) -> out_BHTD"""


def row_attention(visible_until: NDArray[np.int32], device: torch.device, slots: Slots | None = None) -> Attend:
    """Attention over one row [1, T]: key j is visible to query i when j <= i < visible_until[j].

    With `slots`, keys and values get the columns that events made, each visible from its birth to its death.
    """
    deaths = visible_until if slots is None else slots.columns.death
    births = np.arange(len(deaths), dtype=np.int32) if slots is None else slots.columns.birth
    over = _flex(births, deaths, len(visible_until), device) if device.type == "cuda" else _by_piece(births, deaths)
    if slots is None:
        return over

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        return over(layer, q, *slots(layer, q, k, v, scale), scale)

    return attend


def _by_piece(births: NDArray[np.int32], deaths: NDArray[np.int32]) -> Attend:
    """Exact attention that costs what is visible, in as few plain calls as the row has stretches."""
    plan = pieces(deaths, births=births)

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        return attend_pieces(q, k, v, plan, scale)

    return attend


def flex_mask(deaths: Tensor, births: Tensor | None = None, tokens: int | None = None) -> Any:
    """The FlexAttention block mask of a row: columns from birth to death, those of the tokens first."""
    from torch.nn.attention.flex_attention import create_block_mask

    born = torch.arange(len(deaths), device=deaths.device) if births is None else births

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:  # noqa: ARG001 - FlexAttention's signature
        return (born[j] <= i) & (i < deaths[j])

    length = len(deaths) if tokens is None else tokens
    return create_block_mask(visible, None, None, length, len(deaths), device=str(deaths.device))


FLEX_BLOCK = 128
"""Rows are padded to whole blocks on CUDA: shorter ones would be compiled as another, narrower kernel."""


def flex_padded(visible_until: NDArray[np.int32]) -> NDArray[np.int32]:
    """Whole blocks, the padding seen by nobody but itself: in blocks of 4, [3, 3, 3] becomes [3, 3, 3, 4]."""
    length = len(visible_until)
    ends = np.arange(length + 1, length + 1 + -length % FLEX_BLOCK, dtype=np.int32)
    return np.concatenate([visible_until, ends])


def flex_columns(
    births: NDArray[np.int32], deaths: NDArray[np.int32], tokens: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Births and deaths with the columns of tokens, then those that events made, each filled up to whole blocks.

    In blocks of 4, three tokens and a slot born at 2: births 0 1 2 3, 2 0 0 0 and deaths 3 3 3 4, 3 0 0 0.
    """
    whole = flex_padded(deaths[:tokens])
    never = np.zeros(-(len(deaths) - tokens) % FLEX_BLOCK, np.int32)
    born = np.concatenate([np.arange(len(whole), dtype=np.int32), births[tokens:], never])
    return born, np.concatenate([whole, deaths[tokens:], never])


def _flex(births: NDArray[np.int32], deaths: NDArray[np.int32], tokens: int, device: torch.device) -> Attend:
    """The same intervals as a FlexAttention mask; compiled, since the eager form is a slow reference."""
    born, dead = flex_columns(births, deaths, tokens)
    extra, never = -tokens % FLEX_BLOCK, -(len(deaths) - tokens) % FLEX_BLOCK
    mask = flex_mask(torch.from_numpy(dead).to(device), torch.from_numpy(born).to(device), tokens + extra)
    kernel = _compiled_flex()

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        q = pad(q, (0, 0, 0, extra))
        k, v = (_blocks(x, tokens, extra, never) for x in (k, v))
        out = kernel(q, k, v, block_mask=mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
        return out[:, :, :tokens]

    return attend


def _blocks(x_1KCD: Tensor, tokens: int, extra: int, never: int) -> Tensor:
    """Columns of tokens, then those that events made, each filled up to whole blocks."""
    if x_1KCD.shape[2] == tokens:
        return pad(x_1KCD, (0, 0, 0, extra))
    parts = x_1KCD[:, :, :tokens], x_1KCD[:, :, tokens:]
    return torch.cat([pad(parts[0], (0, 0, 0, extra)), pad(parts[1], (0, 0, 0, never))], 2)


_flex_kernel: Callable[..., Tensor] | None = None


def _compiled_flex() -> Callable[..., Tensor]:
    """Compiled once a process: compiling again for each row would take seconds."""
    global _flex_kernel
    if _flex_kernel is None:
        from torch.nn.attention.flex_attention import flex_attention

        _flex_kernel = torch.compile(flex_attention, dynamic=True)
    return _flex_kernel


def causal(_: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return sdpa(q, k, v, is_causal=q.shape[2] > 1, scale=scale, enable_gqa=True)


INEXACT = ("sliding_window", "softcap", "s_aux", "position_bias", "chunk_size")
"""Arguments by which a model asks for another attention than softmax(QK)V over all that is visible."""


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, _mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """The function transformers calls in every layer; queries and keys arrive rotated."""
    asked = [name for name in INEXACT if kwargs.get(name) is not None]
    if asked:
        raise ModelError(
            f"{type(module).__name__} asks for {', '.join(asked)}, which this attention does not compute; "
            "expected a model with plain full attention in every layer"
        )
    attend: Attend = kwargs.get("attend") or causal
    scale = kwargs.get("scaling")
    width = query.shape[-1]
    out = attend(int(module.layer_idx), query, key, value, width**-0.5 if scale is None else scale)  # type: ignore[arg-type]
    return out.transpose(1, 2).contiguous(), None


def _no_mask(*_: Any, **__: Any) -> None:
    """Visibility travels in `attend`, so transformers need not build a mask."""


ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _no_mask)
