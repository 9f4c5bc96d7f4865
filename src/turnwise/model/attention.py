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

NAME = "turnwise"

Attend = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""(layer, q_BHTD, k_BKTD, v_BKTD, scale) -> out_BHTD"""


def row_attention(visible_until: NDArray[np.int32], device: torch.device) -> Attend:
    """Attention over one row [1, T]: key j is visible to query i when j <= i < visible_until[j]."""
    return _flex(visible_until, device) if device.type == "cuda" else _by_piece(visible_until)


def _by_piece(visible_until: NDArray[np.int32]) -> Attend:
    """Exact attention that costs what is visible, in as few plain calls as the row has stretches."""
    plan = pieces(visible_until)

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        return attend_pieces(q, k, v, plan, scale)

    return attend


def flex_mask(visible_until: Tensor) -> Any:
    """The FlexAttention block mask of a row."""
    from torch.nn.attention.flex_attention import create_block_mask

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:  # noqa: ARG001 - FlexAttention's signature
        return (j <= i) & (i < visible_until[j])

    length = len(visible_until)
    return create_block_mask(visible, None, None, length, length, device=str(visible_until.device))


FLEX_BLOCK = 128
"""Rows are padded to whole blocks on CUDA: shorter ones would be compiled as another, narrower kernel."""


def flex_padded(visible_until: NDArray[np.int32]) -> NDArray[np.int32]:
    """Whole blocks, the padding seen by nobody but itself: in blocks of 4, [3, 3, 3] becomes [3, 3, 3, 4]."""
    length = len(visible_until)
    ends = np.arange(length + 1, length + 1 + -length % FLEX_BLOCK, dtype=np.int32)
    return np.concatenate([visible_until, ends])


def _flex(visible_until: NDArray[np.int32], device: torch.device) -> Attend:
    """The same interval as a FlexAttention mask; compiled, since the eager form is a slow reference."""
    whole = flex_padded(visible_until)
    mask = flex_mask(torch.from_numpy(whole).to(device))
    length, extra = len(visible_until), len(whole) - len(visible_until)
    kernel = _compiled_flex()

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        q, k, v = (pad(x, (0, 0, 0, extra)) for x in (q, k, v))
        out = kernel(q, k, v, block_mask=mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
        return out[:, :, :length]

    return attend


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
