"""The formulas of compaction as plain loops in fp64, one head at a time, and random heads to try them on."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st


def weights(q: np.ndarray, k: np.ndarray, scale: float) -> np.ndarray:
    """E of one head, relative to the largest logit of each query."""
    e = np.zeros((len(q), len(k)))
    for i in range(len(q)):
        logits = [scale * float(q[i] @ k[j]) for j in range(len(k))]
        e[i] = np.exp(np.array(logits) - max(logits))
    return e


def values(q, k, v, keep, inside, scale, ridge) -> np.ndarray:
    """C2 of one head, written as in the definition: V_keep + (X'X + lam I)^-1 X'(Y - X V_keep)."""
    e = weights(q, k, scale)
    region = range(*inside)
    outside = [j for j in range(len(k)) if j not in region]
    x, y = np.zeros((len(q), len(keep))), np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        z = e[i].sum()
        zn = e[i, keep].sum() + e[i, outside].sum()
        x[i] = e[i, keep] / zn
        y[i] = e[i] @ v / z - (e[i, outside] / zn) @ v[outside]
    lam = ridge * np.trace(x.T @ x) / len(keep) + 1e-12
    return v[keep] + np.linalg.inv(x.T @ x + lam * np.eye(len(keep))) @ x.T @ (y - x @ v[keep])


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    e = weights(q, k, scale)
    return e / e.sum(1, keepdims=True) @ v


@st.composite
def heads(draw: st.DrawFn):
    """q, k, v, keep, inside, scale of a few heads, in fp64."""
    k_heads, n, d = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.sampled_from([2, 4]))
    before, size, after = draw(st.integers(0, 4)), draw(st.integers(1, 8)), draw(st.integers(0, 4))
    t = draw(st.integers(1, size))
    draws = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    q, k, v = (
        torch.randn(k_heads, c, d, generator=draws, dtype=torch.float64)
        for c in (n, before + size + after, before + size + after)
    )
    keep = torch.stack([torch.randperm(size, generator=draws)[:t].sort().values for _ in range(k_heads)]) + before
    return q * draw(st.sampled_from([1.0, 5.0])), k, v, keep, (before, before + size), d**-0.5
