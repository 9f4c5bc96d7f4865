"""Queries in the pool: any number of heads a group, and what stays of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from turnwise.engine import stored
from turnwise.engine.pool import Pool, Shape


@pytest.mark.parametrize("groups", [1, 2, 3, 5])
@torch.inference_mode()
def test_queries_come_back_as_they_were_written_and_those_that_stay_move_up(groups: int) -> None:
    shape = Shape(2, 2, groups, 4, torch.float32, torch.device("cpu"))
    pool = Pool(shape, 512, fixed=True)
    pool.take(70)
    extent, other = (pool.take(stored.columns_each(shape) * 12) for _ in range(2))
    q = torch.randn(1, 2 * groups, 20, 4)
    tokens, places = np.arange(5, 15), np.arange(10)
    rows = stored.QueryRows.of(shape, [(extent, tokens, places)])
    for layer in range(2):
        rows.write(pool.keys[layer], pool.values[layer], q)
    expected = q[0].unflatten(0, (2, groups))[:, :, 5:15]
    torch.testing.assert_close(stored.read(pool, extent, 1, places), expected)
    stored.copy(pool, extent, other, 10)
    stored.pack(pool, extent, np.array([0, 3, 7]))
    torch.testing.assert_close(stored.read(pool, extent, 1, np.arange(3)), expected[:, :, [0, 3, 7]])
    torch.testing.assert_close(stored.read(pool, other, 0, places), expected)
    assert stored.read(pool, extent, 0, np.arange(0)).shape == (2, groups, 0, 4)
