"""Episodes without training, and what they say."""

from turnwise.evals.heldout import held_out
from turnwise.evals.interval import wilson

__all__ = ["held_out", "wilson"]
