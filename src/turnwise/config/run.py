"""The config of one training run. The text under a field is its help text, and stands nowhere else."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.config.compaction import CompactionConfig, RolloutConfig
from turnwise.config.echo import EchoConfig
from turnwise.config.loss import DppoConfig, LossConfig
from turnwise.config.section import Section

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class TinyConfig(Section):
    """The model that `model = "tiny"` builds from random weights, its tokenizer trained on the environment's text."""

    layers: Positive = 2
    """Transformer layers."""
    width: Positive = 128
    """Hidden size."""
    heads: Positive = 4
    """Query heads."""
    kv_heads: Positive = 1
    """Key/value heads."""
    vocab: Positive = 512
    """Largest vocabulary; the tokenizer stops earlier when the text has no more merges."""
    context: Positive = 4096
    """Longest sequence."""
    init: Annotated[float, Field(gt=0.0)] = 0.09
    """Spread of the first weights; the 0.02 usual for widths of thousands learns slowly at this size."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % (2 * self.heads) or self.heads % self.kv_heads:
            raise ValueError(
                f"found width {self.width}, heads {self.heads}, kv_heads {self.kv_heads}; "
                "expected width divisible by 2 x heads and heads divisible by kv_heads"
            )
        return self


class SamplingConfig(Section):
    """How replies are drawn."""

    temperature: Annotated[float, Field(ge=0.0, le=100.0)] = 1.0
    """Softmax temperature. Training needs it above 0."""
    max_tokens: Positive = 256
    """Longest reply, in tokens."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Nucleus sampling; what could be drawn is recorded and the trainer normalises over the same tokens."""
    top_k: Count = 0
    """Draw from the k likeliest tokens; 0 is off. Recorded like top_p."""
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Drop tokens less likely than this share of the likeliest. Recorded like top_p."""
    choices: list[str] = []
    """The only replies allowed, as a trie over tokens; empty allows any. Recorded like top_p."""

    @model_validator(mode="after")
    def _choices_differ(self) -> Self:
        if any(not c for c in self.choices):
            raise ValueError(f"choices {self.choices!r} hold an empty reply; expected non-empty texts")
        twice = sorted({c for c in self.choices if self.choices.count(c) > 1})
        if twice:
            raise ValueError(f"choices name {twice} more than once; expected each reply once")
        return self


class EnvConfig(Section):
    """The environment episodes are played in, and the limits of an episode."""

    id: str = "babyai"
    """A built-in environment, or `package.module:Class` of your own."""
    args: dict[str, Any] = {}
    """Keyword arguments of the environment."""
    group: Positive = 8
    """Sibling episodes of each task, for the group baseline."""
    max_turns: Positive = 16
    """Turns an episode may take."""
    max_tokens: Positive = 4096
    """Tokens an episode may hold, prompts and replies together."""
    timeout_s: Annotated[float, Field(gt=0.0)] = 600.0
    """Seconds an episode may take."""
    retries: Count = 1
    """How often an episode that failed in the environment is played again before it is counted as failed."""
    on_bad_call: Literal["pass", "answer", "end"] = "pass"
    """A tool call that cannot be read, names no tool there is, or has arguments that do not fit: `pass` hands it to the
    environment, `answer` tells the model in a tool message, `end` ends the episode (parse_error)."""
    on_no_call: Literal["pass", "end"] = "pass"
    """A reply without a tool call where there are tools: `end` ends the episode once the environment has seen it."""
    on_cut: Literal["pass", "end"] = "pass"
    """A reply cut at `sampling.max_tokens`: `end` ends the episode once the environment has seen it (length)."""
    save_columns: list[str] = []
    """Columns to add to the rollouts table: names in what the environment calls `extra`, in a task's data, or among an
    episode's metrics."""
    holdout_fraction: Fraction = 0.2
    """Share of tasks kept out of training, chosen by a hash of the task's key."""
    holdout_seed: int = 0
    """Salt of that hash."""
    sampling: SamplingConfig = SamplingConfig()
    """How replies are drawn."""
    echo: EchoConfig | None = None
    """Tokens of the environment that are learnt by cross-entropy; left out, there are none."""

    @field_validator("save_columns")
    @classmethod
    def _columns_differ(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names) or not all(names):
            raise ValueError(f"found save_columns {names}; expected names, each once")
        return names

    @model_validator(mode="after")
    def _args_have_values(self) -> Self:
        if _holds_none(self.args):
            raise ValueError(f"found args {self.args!r}; expected values that TOML can write: leave out what is null")
        return self


def _holds_none(value: Any) -> bool:
    """Whether null stands anywhere inside: it could be used, but not written to config.toml."""
    if isinstance(value, dict | list):
        return any(_holds_none(v) for v in (value.values() if isinstance(value, dict) else value))
    return value is None


class AdvantageConfig(Section):
    """How rewards become advantages; statistics are over the sibling episodes of a task."""

    type: Literal["grpo", "rloo", "max_rl", "turn", "none"] = "grpo"
    """grpo: reward minus the group's mean. rloo: minus the mean of the other siblings. max_rl: grpo divided by that
    mean. turn: what a turn and those after it earned, minus the group's mean at that turn. none: the reward itself."""
    std: bool = False
    """grpo and turn: divide by the group's standard deviation."""
    discount: Fraction = 1.0
    """turn: how much a reward counts one turn earlier."""

    @model_validator(mode="after")
    def _fits_type(self) -> Self:
        if self.std and self.type not in ("grpo", "turn"):
            raise ValueError(
                f"found std with type {self.type}; expected type grpo or turn: the others do not divide by the "
                "standard deviation"
            )
        if self.discount != 1.0 and self.type != "turn":
            raise ValueError(f"found discount {self.discount} with type {self.type}; expected type turn")
        return self


class OracleConfig(Section):
    """A bonus for tokens that the policy itself finds likelier when it is told more: the environment's `oracle`
    messages, or `oracle` in a task's data (a text, or messages), stand before the conversation when its replies are
    scored once more."""

    coef: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """Weight of the bonus in the advantage; 0 is off."""
    clip: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1.0
    """The bonus, a difference of log-probabilities, is kept within +-clip."""
    min_reward: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """Trajectories under this reward get no bonus."""


class TrainConfig(Section):
    """The optimizer and the batch."""

    steps: Positive = 100
    """Steps of the run: each plays `tasks` x `env.group` episodes and learns from them."""
    tasks: Positive = 16
    """Tasks a step."""
    passes: Positive = 1
    """How often a step's episodes are learnt from."""
    updates: Positive = 1
    """Optimizer steps a pass; the tasks are divided among them."""
    lr: Annotated[float, Field(gt=0.0, lt=10.0)] = 1e-5
    """Peak learning rate."""
    warmup: Count = 0
    """Steps of linear warm-up."""
    decay: Count = 0
    """Step at which the learning rate has fallen linearly to 0; 0 keeps it constant."""
    betas: Annotated[list[Annotated[float, Field(ge=0.0, lt=1.0)]], Field(min_length=2, max_length=2)] = [0.9, 0.999]
    """AdamW's averages."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """AdamW's weight decay."""
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    """Gradients longer than this are shortened to it."""
    row_tokens: Positive = 8192
    """Most tokens in a row; one row is one forward and backward pass. Longer trees are split between branches."""
    share: Literal["trajectory", "group"] = "group"
    """What is merged into one tree: each trajectory alone, or all siblings of a task."""
    checkpoint_activations: bool = False
    """Keep only the input of each layer for the backward pass and compute the rest again there: less memory, about a
    third more time."""
    threads: Count = 0
    """CPU threads for torch; 0 leaves torch's own choice."""
    export_tokens: Count = 0
    """Steps between two exports of every token with all its numbers, for `turnwise inspect RUN --tokens`; 0 is off."""
    warn_breaks: Fraction = 0.05
    """Share of a step's turns whose prefix may break in a way that nobody meant before the run says so; 1 is never."""

    @model_validator(mode="after")
    def _updates_divide(self) -> Self:
        if self.updates > self.tasks:
            raise ValueError(
                f"found updates {self.updates} over tasks {self.tasks}; expected at most one update a task"
            )
        if self.decay and self.decay <= self.warmup:
            raise ValueError(f"found decay {self.decay} and warmup {self.warmup}; expected decay 0 or after warmup")
        return self


class EvalConfig(Section):
    """Episodes on held-out tasks, before, during and after training."""

    tasks: Count = 200
    """Held-out tasks; 0 turns evaluation off."""
    every: Count = 0
    """Also evaluate after every so many steps; 0 only before the first and after the last."""
    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    """Temperature of the held-out episodes."""
    cache: Literal["same", "whole", "both"] = "same"
    """same: compacted like the rollouts, or as `eval.compaction` says. whole: not at all. both: the one and then the
    other, whose figures are called `eval/whole/...`."""
    compaction: CompactionConfig | None = None
    """Compaction of the held-out episodes; left out, that of the rollouts."""

    @model_validator(mode="after")
    def _cache_is_one(self) -> Self:
        if self.cache == "whole" and self.compaction is not None:
            raise ValueError("found eval.cache whole with [eval.compaction]; expected same or both, or no compaction")
        return self


class CheckpointConfig(Section):
    """When the run is saved."""

    every: Positive = 10
    """Steps between checkpoints; the last step is always saved."""
    keep: Positive = 2
    """How many of the newest checkpoints stay on disk."""


class RunConfig(Section):
    """One training run."""

    name: str = "run"
    """Name of the run: its folder is `out`/`name`."""
    out: str = "runs"
    """Folder that holds the run folders."""
    seed: int = 0
    """Seed of everything random: first weights, tasks, replies."""
    model: str = "tiny"
    """`tiny` (built from random weights), `smollm2` (SmolLM2-135M-Instruct), a folder, or a hub name."""
    renderer: str = "auto"
    """How messages become tokens: auto, chatml, template, or a renderer of the `renderers` package such as qwen3."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights."""
    device: str = "auto"
    """auto takes CUDA where there is one, else the CPU."""
    tiny: TinyConfig = TinyConfig()
    env: EnvConfig = EnvConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    oracle: OracleConfig = OracleConfig()
    loss: LossConfig = DppoConfig()
    rollout: RolloutConfig = RolloutConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _can_be_trained(self) -> Self:
        if self.env.sampling.temperature == 0.0:
            raise ValueError(
                "found env.sampling.temperature 0; expected above 0: at 0 the sampler's log-probabilities say nothing "
                "about the policy. Evaluation may use 0: set eval.temperature instead"
            )
        if self.advantage.type != "none" and self.env.group < 2:
            raise ValueError(
                f"found env.group {self.env.group} with advantage.type {self.advantage.type}; expected at least 2 "
                "siblings: a lone one equals its group's mean and teaches nothing (or advantage.type none)"
            )
        if self.loss.type in ("sft", "opd") and self.advantage.type != "none":
            raise ValueError(
                f"found loss.type {self.loss.type} with advantage.type {self.advantage.type}; expected advantage.type "
                "none: this loss has no use for a group baseline, and groups without spread would be left out"
            )
        if self.loss.type in ("sft", "opd") and self.oracle.coef:
            raise ValueError(
                f"found oracle.coef {self.oracle.coef} with loss.type {self.loss.type}; expected 0: the bonus is part "
                "of the advantage, which this loss does not read"
            )
        if self.loss.type in ("sft", "opd") and self.env.echo is not None:
            raise ValueError(
                f"found [env.echo] with loss.type {self.loss.type}; expected dppo, grpo, gspo, cispo or custom: "
                "leave [env.echo] out"
            )
        self._can_be_compacted()
        if not self.name or "/" in self.name or self.name in {".", ".."}:
            raise ValueError(f"found name {self.name!r}; expected a plain folder name (set `out` for the folder above)")
        return self

    def _can_be_compacted(self) -> None:
        """Whether the trainer can replay what is configured."""
        compaction = self.rollout.compaction
        why = compaction.refused() if compaction else None
        if why:
            raise ValueError(why)
        cuts = compaction is not None and compaction.method == "delete_reread" and compaction.trigger != "turns"
        if cuts and self.loss.type == "gspo":
            raise ValueError(
                "found loss.type gspo with rollout.compaction.method delete_reread within replies; expected trigger "
                "turns, another method or another loss: a reply that is cut has no mean ratio"
            )
        if self.eval.cache == "both" and compaction is None and self.eval.compaction is None:
            raise ValueError("found eval.cache both without compaction; expected [rollout.compaction] or same")
