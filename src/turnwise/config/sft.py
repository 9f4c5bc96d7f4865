"""What `turnwise sft` and `turnwise sft-data` may be told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from turnwise.config.run import CheckpointConfig, Count, EnvConfig, Fraction, Positive, TinyConfig, TrainConfig
from turnwise.config.section import Section


class SftTrainConfig(TrainConfig):
    """The optimizer and the batch."""

    steps: Positive = 100
    """Steps of the run: each learns from `tasks` conversations."""
    tasks: Positive = 16
    """Conversations a step; all are read before any comes again."""
    passes: Positive = 1
    """How often a step's conversations are learnt from."""
    updates: Positive = 1
    """Optimizer steps a pass; the conversations are divided among them."""
    share: Literal["trajectory", "group"] = "group"
    """What is merged into one tree: each conversation alone, or all of a step that belong to one task."""


class SftEvalConfig(Section):
    """The loss on held-out conversations, before, during and after training."""

    conversations: Count = 200
    """Held-out conversations; 0 turns evaluation off."""
    every: Count = 0
    """Also evaluate after every so many steps; 0 only before the first and after the last."""


class SftRunConfig(Section):
    """One supervised run: the conversations, and the model that learns what their assistant says."""

    name: str = "sft"
    """Name of the run: its folder is `out`/`name`."""
    out: str = "runs"
    """Folder that holds the run folders."""
    seed: int = 0
    """Seed of the first weights and of the order of conversations."""
    data: list[str] = []
    """Files of conversations, one JSON object a line in OpenAI shape, such as `turnwise sft-data` writes."""
    holdout_fraction: Fraction = 0.05
    """Share of conversations kept out of training, chosen by a hash of their task (or of their id)."""
    holdout_seed: int = 0
    """Salt of that hash."""
    model: str = "smollm2"
    """`tiny` (built from random weights), `smollm2` (SmolLM2-135M-Instruct), a folder, or a hub name."""
    renderer: str = "auto"
    """How messages become tokens: auto, chatml, template, or a renderer of the `renderers` package such as qwen3."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights."""
    device: str = "auto"
    """auto takes CUDA where there is one, else the CPU."""
    reduction: Literal["token", "sequence", "trace"] = "token"
    """What the loss is a mean over: all tokens alike, replies, or conversations."""
    tiny: TinyConfig = TinyConfig()
    train: SftTrainConfig = SftTrainConfig()
    eval: SftEvalConfig = SftEvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if not self.data:
            raise ValueError("found no data; expected a file of conversations: --data demos/data.jsonl")
        if not self.name or "/" in self.name or self.name in {".", ".."}:
            raise ValueError(f"found name {self.name!r}; expected a plain folder name (set `out` for the folder above)")
        if self.eval.conversations and not self.holdout_fraction:
            raise ValueError(
                "found holdout_fraction 0 with eval.conversations above 0; expected a share to hold out, or "
                "eval.conversations 0"
            )
        return self


class EndpointConfig(Section):
    """An OpenAI-compatible server that plays the episodes."""

    url: str = ""
    """Its address up to /v1, such as http://127.0.0.1:8000/v1."""
    name: str = ""
    """The model to ask for."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; one that is not set sends none."""
    timeout_s: Annotated[float, Field(gt=0.0)] = 120.0
    """Seconds one request may take."""
    retries: Count = 4
    """How often a request that failed is sent again, each time after twice the wait."""


class DemoEnvConfig(EnvConfig):
    """The environment episodes are played in, and the limits of an episode."""

    group: Positive = 1
    """Attempts at each task."""


class SftDataConfig(Section):
    """Conversations to gather: who plays, in which environment, and which episodes are kept."""

    out: str = "demos"
    """Folder that gets data.jsonl (what is kept), episodes.jsonl (every episode) and config.toml."""
    source: Literal["engine", "endpoint", "expert"] = "engine"
    """Who plays: a model in the built-in engine, an OpenAI-compatible endpoint, or the environment's own expert."""
    tasks: Positive = 100
    """Tasks to play, from the training side of the split; more in a later call goes on where this one ended."""
    seed: int = 0
    """Seed of tasks and replies."""
    threshold: float = 0.0
    """Episodes with a reward above this are kept."""
    oracle: bool = False
    """Whether the player is told the environment's oracle messages first; they are taken out before saving."""
    parallel: Positive = 16
    """Episodes played at once."""
    expert: str = ""
    """An expert of your own, as 'package.module:function' or 'file.py:function'."""
    model: str = "smollm2"
    """engine: `tiny`, `smollm2`, a folder such as a run's checkpoint, or a hub name."""
    renderer: str = "auto"
    """engine: how messages become tokens."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """engine: precision of the weights."""
    device: str = "auto"
    """engine: auto takes CUDA where there is one, else the CPU."""
    tiny: TinyConfig = TinyConfig()
    env: DemoEnvConfig = DemoEnvConfig()
    endpoint: EndpointConfig = EndpointConfig()

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> Self:
        """What nobody here would heed is refused."""
        env, others = self.env, self.source != "engine"
        heard = {name: getattr(env, f"on_{name}") for name in ("bad_call", "no_call", "cut")} if others else {}
        vain = [f"env.on_{name} {what!r}" for name, what in heard.items() if what != "pass"]
        if vain:
            raise ValueError(
                f"found {', '.join(vain)} with source {self.source}; expected 'pass': only the engine's replies are "
                "judged before the environment sees them"
            )
        if env.echo is not None or env.save_columns:
            raise ValueError("found env.echo or env.save_columns; expected neither: conversations hold messages only")
        if self.source == "endpoint" and (env.sampling.top_k or env.sampling.min_p):
            raise ValueError(
                f"found env.sampling.top_k {env.sampling.top_k} and min_p {env.sampling.min_p} with source endpoint; "
                "expected 0: OpenAI's chat route has temperature and top_p only"
            )
        return self

    @model_validator(mode="after")
    def _fits_source(self) -> Self:
        if self.source == "endpoint" and not (self.endpoint.url and self.endpoint.name):
            raise ValueError(
                "found source endpoint without endpoint.url and endpoint.name; expected both, such as "
                "--endpoint.url http://127.0.0.1:8000/v1 --endpoint.name my-model"
            )
        if self.source == "endpoint" and self.env.sampling.choices:
            raise ValueError(
                "found env.sampling.choices with source endpoint; expected none: a server takes no choices"
            )
        if self.source == "engine" and self.env.sampling.temperature == 0.0:
            raise ValueError(
                "found env.sampling.temperature 0 with source engine; expected above 0: attempts at one task should "
                "differ (0.01 is as good as greedy)"
            )
        if self.source == "expert" and (self.oracle or self.env.group > 1):
            raise ValueError(
                "found oracle or env.group above 1 with source expert; expected neither: it knows what to do, and "
                "does the same each time"
            )
        return self
