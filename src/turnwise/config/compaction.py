"""When and how a session's key/value cache is compacted while it samples: `[rollout.compaction]`."""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.config.condense import CondenseConfig
from turnwise.config.section import Section

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]

NEEDS = {"budget": "max_kv_tokens", "turns": "protect_turns", "segments": "every"}
"""What each trigger has to be told."""
BELONGS = {
    "max_kv_tokens": ("budget",),
    "protect_turns": ("turns",),
    "every": ("segments",),
    "window": ("budget", "segments"),
    "protect_tokens": ("budget", "segments"),
}
"""Which triggers read a key."""
READS = {
    "ratio": ("match", "evict"),
    "recent": ("match", "evict"),
    "per_slot": ("match", "evict"),
    "source": ("match", "evict"),
    "select": ("match", "evict"),
    "uniform": ("match", "evict"),
    "ridge": ("match",),
    "bias": ("match",),
    "carry_ratio": ("delete",),
    "carry_head": ("delete_reread",),
    "carry_tail": ("delete_reread",),
}
"""Which methods read a key."""
REPLAYED = ("own", "suffix", "context")
"""Sources whose queries a trainer computes anyway."""
NAMES = {"used", "total", "remaining"}


class NoticeConfig(Section):
    """A user message that tells the policy how many tokens are left. It is learnt by echo, if at all."""

    template: str = "{remaining} of {total} tokens are left."
    """Its text; it may name {used}, {total} and {remaining}."""
    every: Count = 0
    """Tokens without compaction between two of them; 0 is one after each event."""

    @field_validator("template")
    @classmethod
    def _names_known(cls, template: str) -> str:
        try:
            parts = [(name, form or how) for _, name, form, how in Formatter().parse(template) if name is not None]
        except ValueError as error:
            raise ValueError(f"found template {template!r}: {error}; expected braces in pairs") from error
        unknown = sorted({name for name, _ in parts} - NAMES)
        if unknown:
            raise ValueError(f"found {unknown} in template; expected only used, total and remaining")
        if any(dressed for _, dressed in parts):
            raise ValueError(
                f"found template {template!r}; expected names alone: {{used}}, not {{used:9}} or {{used!r}}"
            )
        return template


class CompactionConfig(Section):
    """When a session's key/value cache is compacted, what goes and what stays of it. It travels with the turns, so that
    the trainer replays what the sampler did."""

    trigger: Literal["budget", "turns", "segments"] = "budget"
    """budget: before the cache would pass `max_kv_tokens`. turns: after a reply, when more than `protect_turns` turns
    stand. segments: after every `every`-th sampled token."""
    max_kv_tokens: Positive | None = None
    """budget: the most tokens and slots the cache may hold."""
    protect_turns: Count | None = None
    """turns: how many of the newest turns stay as they are."""
    every: Positive | None = None
    """segments: how many sampled tokens lie between two events."""
    window: Positive | None = None
    """budget, segments: how many of the oldest columns behind the protected ones go at once; left out, all of them but
    the newest `protect_tokens`."""
    protect_tokens: Count = 0
    """budget, segments: how many of the newest columns never go."""
    max_events: Positive | None = None
    """How often it may fire in a conversation; left out, as often as needed."""
    protect: str | int = "system"
    """What is never compacted at the beginning: system (the system messages), first_user (all through the first user
    message), or a number of tokens."""
    method: Literal["match", "evict", "delete", "delete_reread"] = "match"
    """match: keep some keys and fit their values to attention as it was. evict: keep them as they are. delete: keep
    nothing but the newest `carry_ratio`. delete_reread: throw the cache away and read the text that stays again."""
    ratio: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.25
    """match, evict: slots for each column that goes."""
    carry_ratio: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """delete: the share of what goes, its newest, that stays."""
    carry_head: Count = 0
    """delete_reread: how many of the first tokens of what goes are read again."""
    carry_tail: Count = 0
    """delete_reread: how many of its last tokens are."""
    source: Literal["own", "suffix", "context", "keys", "gaussian"] = "own"
    """match, evict: whose queries the slots are for. Training replays own, suffix and context."""
    per_slot: Positive = 12
    """match, evict: queries for each slot, at least; more fit better and take longer."""
    recent: Count = 32
    """match, evict: newest columns that stay in any case, at most half of the slots."""
    ridge: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1e-2
    """match: how much the fit is held back."""
    select: Literal["top", "omp"] = "top"
    """match, evict: how keys are chosen; omp (matching pursuit) is there to be compared."""
    bias: bool = False
    """match: also weigh the kept keys. Evaluation only."""
    uniform: bool = True
    """match, evict: as many slots for every head. Off in evaluation only."""
    gradient: Literal["map", "exact", "none"] = "map"
    """What the trainer lets flow through an event. map: through keys and values, with the fit held fixed. exact:
    everything, at a higher cost. none: nothing."""
    notice: NoticeConfig | None = None
    """Tells the policy how many tokens are left; left out, nothing does."""

    @field_validator("protect")
    @classmethod
    def _protect_known(cls, protect: str | int) -> str | int:
        """A flag's number arrives as text."""
        if isinstance(protect, str) and protect.isdigit():
            return int(protect)
        if protect in ("system", "first_user") or (isinstance(protect, int) and protect >= 0):
            return protect
        raise ValueError(f"found protect {protect!r}; expected system, first_user, or a number of tokens")

    @model_validator(mode="after")
    def _fits_trigger(self) -> Self:
        need = NEEDS[self.trigger]
        if getattr(self, need) is None:
            raise ValueError(f"found trigger {self.trigger} without {need}; expected {need}: the trigger goes by it")
        for key, triggers in BELONGS.items():
            if self.trigger not in triggers and self._told(key):
                raise ValueError(
                    f"found {key} {getattr(self, key)} with trigger {self.trigger}; expected trigger "
                    f"{' or '.join(triggers)}, or leave {key} out: {self.trigger} does not read it"
                )
        return self

    @model_validator(mode="after")
    def _fits_method(self) -> Self:
        for key, methods in READS.items():
            if self.method not in methods and self._told(key):
                raise ValueError(
                    f"found {key} {getattr(self, key)} with method {self.method}; expected method "
                    f"{' or '.join(methods)}, or leave {key} out: {self.method} does not read it"
                )
        return self

    @model_validator(mode="after")
    def _fits_budget(self) -> Self:
        """Something has to go when the budget is reached."""
        most = self.max_kv_tokens
        if most is None:
            return self
        if isinstance(self.protect, int) and self.protect + self.protect_tokens >= most:
            raise ValueError(
                f"found protect {self.protect} and protect_tokens {self.protect_tokens} of max_kv_tokens {most}; "
                "expected fewer together: else nothing may go"
            )
        if self.protect_tokens >= most:
            raise ValueError(f"found protect_tokens {self.protect_tokens} of max_kv_tokens {most}; expected fewer")
        if self.window is not None and self.window > most:
            raise ValueError(f"found window {self.window} over max_kv_tokens {most}; expected at most that")
        return self

    def _told(self, key: str) -> bool:
        """Whether a key says something else than its default."""
        return bool(getattr(self, key) != type(self).model_fields[key].default)

    def refused(self) -> str | None:
        """Why a trainer cannot replay this, if it cannot."""
        if self.bias:
            return "found rollout.compaction.bias true; expected false: the trainer replays keys without weights"
        if not self.uniform:
            return "found rollout.compaction.uniform false; expected true: the trainer replays heads that are alike"
        if self.method in READS["source"] and self.source not in REPLAYED:
            return (
                f"found rollout.compaction.source {self.source!r}; expected one of {', '.join(REPLAYED)}: the trainer "
                "has no other queries. Evaluation may use it: set eval.compaction.source"
            )
        return None


class RolloutConfig(Section):
    """How episodes are sampled, beside `env.sampling`."""

    compaction: CompactionConfig | None = None
    """Compaction of the key/value cache; left out, the cache holds everything."""
    condense: CondenseConfig | None = None
    """Long histories rewritten as shorter text; left out, nothing is."""
