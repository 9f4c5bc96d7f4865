"""The nouns every stage passes to the next, and the protocols Engine, Session and Env.

Imports the standard library and numpy only, so anything may import it. Index suffixes of arrays: P prompt tokens,
C completion tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]


def shared(a: NDArray[Any], b: NDArray[Any]) -> int:
    """How many leading values are equal: 2 for [5 6 7] and [5 6 9 9]."""
    n = min(len(a), len(b))
    unlike = a[:n] != b[:n]
    first = int(unlike.argmax()) if n else 0
    return first if n and unlike[first] else n


Message = dict[str, Any]
"""One chat message, OpenAI shape: role, content, tool_calls, tool_call_id, name, reasoning_content."""
Tool = dict[str, Any]
"""One tool, OpenAI function-calling shape."""


class TurnStop(StrEnum):
    """Why sampling of one turn ended."""

    STOP = "stop"
    """A stop token or the end of a stop string was sampled (it is part of the completion)."""
    LENGTH = "length"
    """`max_tokens` were sampled without a stop."""
    DEADLINE = "deadline"
    """The step's time was over; what was sampled by then counts."""


class EpisodeStop(StrEnum):
    """Why an episode ended."""

    DONE = "done"
    NO_TOOL_CALL = "no_tool_call"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    LENGTH = "length"
    OVERLONG = "overlong"
    PARSE_ERROR = "parse_error"
    ENV_ERROR = "env_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    ENGINE_ERROR = "engine_error"


class BreakKind(StrEnum):
    """How the prompt of a turn continues what stood before it."""

    CLEAN = "clean"
    """It begins with everything so far."""
    BOUNDARY = "boundary"
    """Only scaffold between messages differs."""
    RETOKENISED = "retokenised"
    """The same text in other tokens."""
    THINKING_STRIPPED = "thinking_stripped"
    """Earlier reasoning is gone, and nothing else."""
    TOOL_CALL_RENDERED = "tool_call_rendered"
    """Tool calls mean the same and are written otherwise."""
    CONDENSED = "condensed"
    """The agent rewrote its history and said so."""
    COMPACTED = "compacted"
    """The same tokens, but an event struck their keys and values."""
    OTHER_AGENT = "other_agent"
    """It begins, or continues, another conversation than its agent's own."""
    REWRITTEN = "rewritten"
    """None of these."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn; `choices` are the only completions allowed, as tokens, stop token included.

    `stop` are strings that end a completion once its text holds one, wherever token borders fall. `logit_bias` is added
    to the logits of some tokens: (id, bias). `top_logprobs` asks for so many likeliest tokens beside each sampled one.
    """

    temperature: float = 1.0
    max_tokens: int = 256
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()
    stop: tuple[str, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int = 0

    @property
    def restricted(self) -> bool:
        """Whether some tokens can never be drawn, so that a support has to be recorded."""
        return bool(self.choices) or self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Support:
    """The token ids that could have been drawn, for each sampled token: ids[offsets[c]:offsets[c + 1]].

    An empty slice means the whole vocabulary.
    """

    ids: Ids
    offsets: Ids

    def of(self, c: int) -> Ids:
        return self.ids[self.offsets[c] : self.offsets[c + 1]]

    def take(self, places: NDArray[np.intp]) -> Support:
        """The slices of some tokens, in that order."""
        lengths = np.diff(self.offsets)[places]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Support(self.ids[np.repeat(self.offsets[places], lengths) + inside], offsets)

    @staticmethod
    def join(parts: Sequence[Support]) -> Support:
        """One support for the tokens of several, in order."""
        ends = np.cumsum([0, *(p.offsets[-1] for p in parts)])
        offsets = [p.offsets[1:] + end for p, end in zip(parts, ends, strict=False)]
        return Support(
            np.concatenate([*(p.ids for p in parts), np.zeros(0, np.int32)]).astype(np.int32),
            np.concatenate([np.zeros(1, np.int32), *offsets]).astype(np.int32),
        )

    @staticmethod
    def whole(tokens: int) -> Support:
        """No restriction on any of so many tokens."""
        return Support(np.zeros(0, np.int32), np.zeros(tokens + 1, np.int32))

    @staticmethod
    def stack(slices: Sequence[Ids]) -> Support:
        """Flatten one id array a token: stack([[4, 7], [], [9]]) has ids [4, 7, 9], offsets [0, 2, 2, 3]."""
        offsets = np.zeros(len(slices) + 1, np.int32)
        np.cumsum([len(s) for s in slices], out=offsets[1:])
        return Support(np.concatenate([*slices, np.zeros(0, np.int32)]).astype(np.int32), offsets)


Top = tuple[tuple[int, float], ...]
"""The likeliest tokens and their log-probabilities, likeliest first."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One token of a step under way, as a listener hears of it."""

    id: int
    logprob: float
    policy_version: int
    top: Top = ()


Listener = Callable[[Sampled], None]
"""Called for each token in order, on the event loop, before the step returns; it must not block."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One compaction of a session's cache: columns [start, end) gave way to a few slots, or to none.

    Columns are what attention sees, in order: a column a token, and where an event struck a column a slot. `at` is the
    first token (of prompt + completion) that was computed after it: its own log-probability belongs to the context
    before. `kept` [layers, key/value heads, slots] are the columns the slots were made from, counted from `start`;
    `queries` the tokens whose queries they were fitted to, turned to positions at + i mod `span`.
    Equal events leave equal caches; what triggered one, and what it cost, does not count.
    """

    at: int
    start: int
    end: int
    method: str
    kept: NDArray[np.int16]
    queries: Ids
    source: str = "own"
    span: int = 1
    ridge: float = 1e-2
    trigger: str = "budget"
    before: int = 0
    after: int = 0
    ms: float = 0.0
    residual: float = 0.0

    @property
    def slots(self) -> int:
        """How many columns are left of the region."""
        return int(self.kept.shape[-1])

    def _key(self) -> tuple[Any, ...]:
        return (self.at, self.start, self.end, self.method, self.source, self.span, self.ridge)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        same = self._key() == other._key() and np.array_equal(self.queries, other.queries)
        return same and np.array_equal(self.kept, other.kept)

    def __hash__(self) -> int:
        return hash((*self._key(), self.kept.shape))


@dataclass(frozen=True, slots=True)
class Completion:
    """What one engine step sampled. Arrays are [C]; `logprobs` are of the distribution that was drawn from; `events`
    are all the session has seen so far, in order.

    `stopped_by` is the stop token or stop string that ended it; `top` holds one tuple a token where
    `top_logprobs` asked for them.
    """

    ids: Ids
    logprobs: Floats
    policy_versions: Ids
    stop_reason: TurnStop
    support: Support | None = None
    events: tuple[Event, ...] = ()
    stopped_by: int | str | None = None
    top: tuple[Top, ...] = ()


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who wrote each prompt token. `message` [P] indexes `roles` and `tools`, -1 is scaffold outside any message;
    `body` [P] is 1 for message text, 0 for template scaffold, -1 where the renderer cannot tell."""

    message: NDArray[np.int32]
    body: NDArray[np.int8]
    roles: tuple[str, ...]
    tools: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """How a prompt continues the tokens of turn `turn` of its trajectory: they are equal before token `at`.

    `old` and `new` are the text around `at`, empty where nothing differs; of retokenised text they show the borders
    of tokens, as in "go for|ward".
    """

    kind: BreakKind
    turn: int
    at: int
    old: str = ""
    new: str = ""


@dataclass(slots=True)
class Turn:
    """One model call: what it read [P] and what it wrote [C]; `events` are all that struck the two, in order.

    `prefix` says how the prompt continues what stood before; None where nothing did.
    """

    prompt_ids: Ids
    completion_ids: Ids
    logprobs: Floats
    policy_versions: Ids
    stop_reason: TurnStop
    attribution: Attribution | None = None
    support: Support | None = None
    events: tuple[Event, ...] = ()
    temperature: float = 1.0
    agent: str = "main"
    reward: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    prefix: Break | None = None

    @property
    def ids(self) -> Ids:
        """Prompt and completion."""
        return np.concatenate([self.prompt_ids, self.completion_ids])


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to solve. `key` is stable and unique; the train/held-out split hashes it, or `split` where many tasks
    have to stay on one side together."""

    key: str
    data: Mapping[str, Any] = field(default_factory=dict)
    split: str | None = None


@dataclass(slots=True)
class Observation:
    """What an environment says: new messages, the reward of the last action, and whether the episode is over.

    `oracle`, said at the start if ever, is what the policy is not told: messages that make the task easy.
    """

    messages: list[Message] = field(default_factory=list)
    tools: list[Tool] | None = None
    reward: float = 0.0
    done: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    oracle: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class Trajectory:
    """The turns of one episode. `group` numbers the task within its step, `sibling` the attempt at it."""

    env: str
    task: Task
    group: int
    sibling: int
    seed: int
    turns: list[Turn] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    reward: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    stop_reason: EpisodeStop = EpisodeStop.DONE
    error: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    oracle: list[Message] = field(default_factory=list)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(t.completion_ids) for t in self.turns)


@dataclass(frozen=True, slots=True)
class Entries:
    """Sampled tokens a loss points at, one entry for each trajectory that sampled one. Arrays [E].

    `at` is the sampled token's index in its tree or row and `source` the token that predicts it: not always at - 1,
    since a branch may begin at `at`. `trajectory` indexes the step's list of trajectories. The optional arrays are
    log-probabilities that others give the tokens: the trainer at the start of the step, a reference, a teacher; and
    the bonus that is already part of the advantage.
    """

    at: Ids
    source: Ids
    advantage: Floats
    sampler_logp: Floats
    temperature: Floats
    weight: Floats
    version: Ids
    trajectory: Ids
    turn: Ids
    support: Support
    start_logp: Floats | None = None
    ref_logp: Floats | None = None
    teacher_logp: Floats | None = None
    bonus: Floats | None = None

    def __len__(self) -> int:
        return len(self.at)

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Entries:
        """The entries at `index` (numbers or a mask), in that order."""
        places = np.arange(len(self))[index]
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "support"}
        taken: dict[str, Any] = {name: None if values is None else values[places] for name, values in arrays.items()}
        return Entries(**taken, support=self.support.take(places))

    @staticmethod
    def join(parts: Sequence[Entries]) -> Entries:
        """Concatenate; `at` and `source` must point into the same tokens already; all or none have optional arrays."""
        names = [f.name for f in fields(Entries) if f.name != "support"]
        columns = {name: [getattr(p, name) for p in parts] for name in names}
        arrays: dict[str, Any] = {name: None if c[0] is None else np.concatenate(c) for name, c in columns.items()}
        return Entries(**arrays, support=Support.join([p.support for p in parts]))


Names = NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Echo:
    """Tokens that are learnt by cross-entropy, each at most once for a group. Arrays [M], sorted by `source`.

    `at` is the token's index in its tree or row, `source` the token that predicts it. `alpha` is as configured and
    `weight` what its loss is multiplied by, `turn` of `trajectory` the turn that read it. `tool` is "" where no tool
    wrote it.
    """

    at: Ids
    source: Ids
    alpha: Floats
    weight: Floats
    trajectory: Ids
    turn: Ids
    role: Names
    tool: Names

    def __len__(self) -> int:
        return len(self.at)

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Echo:
        """The tokens at `index` (numbers or a mask), in that order."""
        return Echo(*(getattr(self, f.name)[index] for f in fields(self)))

    def moved(self, by: int) -> Echo:
        """The same tokens in a row where their tree begins at `by`."""
        return replace(self, at=self.at + np.int32(by), source=self.source + np.int32(by))

    def named(self) -> dict[str, NDArray[np.bool_]]:
        """Which tokens each role and each tool wrote; a tool that is called like a role stands as `tool:user`."""
        roles, tools = np.unique(self.role).tolist(), [t for t in np.unique(self.tool).tolist() if t]
        named = {f"tool:{t}" if t in ECHO_ROLES else t: self.tool == t for t in tools}
        return {role: self.role == role for role in roles} | named

    @staticmethod
    def join(parts: Sequence[Echo]) -> Echo:
        """Concatenate; `at` and `source` must point into the same tokens already."""
        listed = [Echo.none(), *parts]
        return Echo(*(np.concatenate([getattr(p, f.name) for p in listed]) for f in fields(Echo)))

    @staticmethod
    def none() -> Echo:
        ids, floats, names = np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.str_)
        return Echo(ids, ids, floats, floats, ids, ids, names, names)


ECHO_ROLES = ("system", "user", "tool", "assistant")
"""Roles whose text may be learnt by cross-entropy."""


@dataclass(frozen=True, slots=True)
class TurnPath:
    """Where the tokens of one turn, prompt then completion, lie in a tree or row: stretches [start, end), in order.

    A turn whose last token lies on another branch: spans [[0, 2], [5, 6]], at [0, 1, 5]. A path shorter than its turn
    was cut; what remains is its beginning.
    """

    trajectory: int
    turn: int
    spans: Ids

    def __len__(self) -> int:
        return int((self.spans[:, 1] - self.spans[:, 0]).sum())

    @property
    def at(self) -> Ids:
        """The index of every token."""
        lengths = self.spans[:, 1] - self.spans[:, 0]
        before = np.cumsum(lengths, dtype=np.int32) - lengths
        at: Ids = np.arange(lengths.sum(), dtype=np.int32) + np.repeat(self.spans[:, 0] - before, lengths)
        return at

    def moved(self, by: int) -> TurnPath:
        """The same path in a row where the tree begins at `by`."""
        return TurnPath(self.trajectory, self.turn, self.spans + np.int32(by))


class Session(Protocol):
    """A conversation an engine holds open: its tokens (read and sampled) and, out of sight, its cache."""

    @property
    def ids(self) -> Sequence[int]: ...


class Engine(Protocol):
    """Holds sessions and samples from them. One call without a session is open, step, close.

    Several completions of one prompt are as many sessions opened with it: it is read once. Steps of different sessions
    share forward passes; steps of one session run in the order they were asked for. What cannot be served raises
    EngineError; its kinds EngineFull (no room now) and TooLong (never any room) tell which.
    """

    async def open(self, prompt_ids: Sequence[int], sampling: Sampling, *, seed: int, client: str = "") -> Session:
        """Start a conversation; nothing is read or sampled yet. `client` is whom limits count it against."""
        ...

    async def step(
        self,
        session: Session,
        new_ids: Sequence[int],
        max_tokens: int | None = None,
        *,
        whole: bool = False,
        sampling: Sampling | None = None,
        seed: int | None = None,
        deadline_s: float | None = None,
        listen: Listener | None = None,
    ) -> Completion:
        """Read `new_ids` after everything the session holds, then sample a completion.

        With `whole`, `new_ids` are the whole prompt: the longest prefix the session holds of it is kept, the rest of
        the session dropped and the rest of the prompt read. `sampling` and `seed` replace the session's from here on;
        draws depend on the seed and how many tokens were sampled since it was set. After `deadline_s` seconds the
        step returns what it has. Cancelling the awaiting task leaves the session as it was before the step.
        """
        ...

    async def fork(self, session: Session, *, seed: int) -> Session:
        """A second conversation that continues from the same tokens without reading them again."""
        ...

    async def close(self, session: Session) -> None:
        """Forget a conversation; a step that runs on it fails."""
        ...

    async def pause(self) -> None:
        """Stop at the next token border: steps wait, sessions stay; returns when nothing is being computed."""
        ...

    async def resume(self) -> None:
        """Go on where `pause` stopped."""
        ...

    async def load(self, folder: Path, version: int) -> None:
        """Take the weights saved in `folder`, at a token border; tokens sampled from then on carry `version`."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Counts since the start and gauges of now, by name."""
        ...


class Env(Protocol):
    """One episode of one task: made, started, stepped until done, closed; never reset."""

    @staticmethod
    def tasks() -> Iterable[Task]:
        """Every task there is, in a fixed order; may be endless. Takes the same arguments as the constructor."""
        ...

    async def start(self, task: Task) -> Observation: ...

    async def step(self, message: Message) -> Observation: ...

    async def close(self) -> None: ...
