"""What each loss may be told; `[loss] type = "..."` chooses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from turnwise.config.section import Section

NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Options(Section):
    """What any loss may add."""

    entropy: NonNegative = 0.0
    """Reward for the exact entropy of the distribution each token was drawn from."""
    reference_kl: NonNegative = 0.0
    """Weight of the divergence (k3 estimator) from the model the run began with; above 0 keeps a frozen copy of it."""
    tis_cap: NonNegative = 0.0
    """Above 0, ratios are taken against the trainer's own weights at the start of the step, and each token's loss is
    multiplied by what sampler and trainer then differed by, at most this: min(p_trainer / p_sampler, tis_cap)."""
    reduction: Literal["token", "sequence", "trace"] = "token"
    """What the loss is a mean over: tokens; sequences (replies, each the mean of its tokens); or traces (trajectories,
    each the mean of its sampled tokens)."""


class DppoConfig(Options):
    """Drops tokens whose probability has already moved the wanted way by more than a bound."""

    type: Literal["dppo"] = "dppo"
    """Chooses this loss."""
    low: NonNegative = 0.2
    """With a negative advantage, drop once the probability fell by more than this."""
    high: NonNegative = 0.2
    """With a positive advantage, drop once the probability rose by more than this."""
    adv_tau: NonNegative = 1.0
    """Weight of the policy term."""
    kl_tau: NonNegative = 1e-3
    """Weight of the squared log-ratio."""


class GrpoConfig(Options):
    """Clipped importance ratios."""

    type: Literal["grpo"] = "grpo"
    """Chooses this loss."""
    low: NonNegative = 0.2
    """Lower clip of the ratio: 1 - low."""
    high: NonNegative = 0.28
    """Upper clip of the ratio: 1 + high."""


class GspoConfig(Options):
    """Clipped importance ratios of whole replies: every token takes its reply's mean log-ratio."""

    type: Literal["gspo"] = "gspo"
    """Chooses this loss."""
    low: NonNegative = 3e-4
    """Lower clip of the reply's ratio: 1 - low. A mean over a reply moves far less than a token's ratio."""
    high: NonNegative = 4e-4
    """Upper clip of the reply's ratio: 1 + high."""


class CispoConfig(Options):
    """The plain policy gradient of every token, weighed by a capped ratio without gradient."""

    type: Literal["cispo"] = "cispo"
    """Chooses this loss."""
    cap: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 5.0
    """Largest weight a ratio may give."""


class OpdConfig(Options):
    """Distillation on own samples: a teacher's log-probabilities take the place of advantages."""

    type: Literal["opd"] = "opd"
    """Chooses this loss."""
    teacher: Annotated[str, Field(min_length=1)]
    """The teacher: `smollm2`, a folder, or a hub name; its vocabulary must be the policy's."""
    low: NonNegative = 0.2
    """Where the teacher finds a token less likely, drop it once its probability fell by more than this."""
    high: NonNegative = 0.2
    """Where the teacher finds a token likelier, drop it once its probability rose by more than this."""


class SftConfig(Options):
    """Cross-entropy on sampled tokens; rewards play no part."""

    type: Literal["sft"] = "sft"
    """Chooses this loss."""


class CustomConfig(Options):
    """A loss of your own: a function (logp_E, tokens, **kwargs) -> turnwise.losses.Result."""

    type: Literal["custom"] = "custom"
    """Chooses this loss."""
    import_path: Annotated[str, Field(min_length=1)]
    """The function: `package.module:function` or `file.py:function`."""
    kwargs: dict[str, Any] = {}
    """Its keyword arguments."""


LossConfig = Annotated[
    DppoConfig | GrpoConfig | GspoConfig | CispoConfig | OpdConfig | SftConfig | CustomConfig,
    Field(discriminator="type"),
]
