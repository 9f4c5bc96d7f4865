"""How sure a share is."""

from __future__ import annotations

import math

Z = 1.959963984540054
"""Two-sided 95%."""


def wilson(successes: float, n: int) -> tuple[float, float]:
    """The 95% Wilson interval of a share: wilson(9, 10) is about (0.60, 0.98)."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    middle = share + Z * Z / (2 * n)
    reach = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    # Rounding must not push a bound past the share itself: at 0 of n the lower one is exactly 0.
    return max(0.0, min(share, (middle - reach) / scale)), min(1.0, max(share, (middle + reach) / scale))
