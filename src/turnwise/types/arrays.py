"""The arrays stages pass on, and what two have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


Floats = NDArray[np.float32]


Names = NDArray[np.str_]


def shared(a: NDArray[Any], b: NDArray[Any]) -> int:
    """How many leading values are equal: 2 for [5 6 7] and [5 6 9 9]."""
    n = min(len(a), len(b))
    unlike = a[:n] != b[:n]
    first = int(unlike.argmax()) if n else 0
    return first if n and unlike[first] else n
