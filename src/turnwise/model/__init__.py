"""Load a model, attend with it by visibility, and score tokens; the same model object samples and trains."""

from turnwise.model.attention import row_attention
from turnwise.model.load import Policy, load, parameters, reload
from turnwise.model.logp import Scores, score

__all__ = ["Policy", "Scores", "load", "parameters", "reload", "row_attention", "score"]
