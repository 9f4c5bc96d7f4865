"""One episode against a scripted engine: what is recorded, what the engine is fed, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from toy import Toy

from turnwise.agents import Limits, play
from turnwise.errors import EngineFull, TooLong
from turnwise.testing import FakeEngine, FakeSession, byte_tokenizer
from turnwise.text import ChatML, Template
from turnwise.types import (
    Break,
    BreakKind,
    Compaction,
    Completion,
    EpisodeStop,
    Observation,
    Sampling,
    Session,
    Task,
    Trajectory,
    TurnStop,
)

TOKENIZER = byte_tokenizer()
CHATML = ChatML(TOKENIZER)
END = TOKENIZER.convert_tokens_to_ids("<|im_end|>")
WIDE = Limits(turns=8, tokens=1000, timeout_s=30.0)
# Takes the reasoning out of every reply but the last, so that a prompt does not begin with what was sampled.
FORGETFUL = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def ids(text: str) -> list[int]:
    found: list[int] = TOKENIZER.encode(text, add_special_tokens=False)
    return found


class Listening(FakeEngine):
    """Also keeps what sessions were opened with."""

    def __init__(self, replies: Sequence[Sequence[int]]) -> None:
        super().__init__(replies)
        self.opened: list[tuple[list[int], int]] = []
        self.compaction: list[Compaction | None] = []

    async def open(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        compaction: Compaction | None = None,
        **_: Any,
    ) -> FakeSession:
        self.opened.append((list(prompt_ids), seed))
        self.compaction.append(compaction)
        return await super().open(prompt_ids, sampling, seed=seed)


def episode(
    *said: str, limits: Limits = WIDE, renderer: Any = CHATML, max_tokens: int = 99, **toy: Any
) -> tuple[Trajectory, Listening]:
    """Play a toy against an engine that says these replies, each with its end mark."""
    engine, empty = Listening([[*ids(text), END] for text in said]), Trajectory("toy", Task("t", {"n": 3}), 0, 0, 11)
    sampling = Sampling(max_tokens=max_tokens, stop_ids=(END,), temperature=0.5)
    trajectory = asyncio.run(play(Toy([], **toy), empty, engine, renderer, sampling, limits))
    assert trajectory is empty and engine.open_sessions == 0
    return trajectory, engine


def test_every_prompt_is_all_that_was_read_and_said_before_and_the_answer() -> None:
    trajectory, _ = episode("a", "bc", "stop")
    first = ids("<|im_start|>user\ntask 3<|im_end|>\n<|im_start|>assistant\n")
    second = [*first, *ids("a"), END, *ids("\n<|im_start|>user\nyou said a<|im_end|>\n<|im_start|>assistant\n")]
    third = [*second, *ids("bc"), END, *ids("\n<|im_start|>user\nyou said bc<|im_end|>\n<|im_start|>assistant\n")]
    assert [t.prompt_ids.tolist() for t in trajectory.turns] == [first, second, third]
    assert [t.completion_ids.tolist() for t in trajectory.turns] == [[*ids(w), END] for w in ("a", "bc", "stop")]


def test_every_turn_after_the_first_says_how_it_continues() -> None:
    turns = episode("a", "bc", "stop")[0].turns
    held = [len(t.ids) for t in turns]
    clean = [Break(BreakKind.CLEAN, n, held[n]) for n in range(2)]
    assert [t.prefix for t in turns] == [None, *clean]


def test_a_turn_keeps_what_the_engine_said_about_its_tokens() -> None:
    (turn,) = episode("stop")[0].turns
    assert (turn.logprobs.tolist(), turn.policy_versions.tolist()) == ([-1.0] * 5, [0] * 5)
    assert (turn.stop_reason, turn.temperature, turn.support) == (TurnStop.STOP, 0.5, None)
    assert turn.attribution is not None and len(turn.attribution.body) == len(turn.prompt_ids)


def test_the_session_is_opened_once_and_fed_only_what_is_new() -> None:
    trajectory, engine = episode("a", "bc", "stop")
    turns = trajectory.turns
    held = [len(t.prompt_ids) + len(t.completion_ids) for t in turns]
    assert engine.opened == [(turns[0].prompt_ids.tolist(), 11)]
    assert engine.read == [[], turns[1].prompt_ids[held[0] :].tolist(), turns[2].prompt_ids[held[1] :].tolist()]


def test_messages_rewards_and_metrics_of_every_turn_survive() -> None:
    trajectory, _ = episode("a", "stop")
    assert [(m["role"], m["content"]) for m in trajectory.messages] == [
        ("user", "task 3"),
        ("assistant", "a"),
        ("user", "you said a"),
        ("assistant", "stop"),
        ("user", "you said stop"),
    ]
    assert [t.reward for t in trajectory.turns] == [0.5, 1.0]
    assert [t.metrics for t in trajectory.turns] == [{"turn": 1.0, "turn_1": 1.0}, {"turn": 2.0, "turn_2": 1.0}]
    assert trajectory.reward == 1.5
    assert trajectory.metrics == {"turn": 2.0, "turn_1": 1.0, "turn_2": 1.0}
    assert trajectory.seconds.keys() == {"env", "model"}


FIRST = len(ids("<|im_start|>user\ntask 3<|im_end|>\n<|im_start|>assistant\n"))
AGAIN = FIRST + 2 + len(ids("\n<|im_start|>user\nyou said a<|im_end|>\n<|im_start|>assistant\n"))


@pytest.mark.parametrize(
    ("limits", "toy", "stop", "turns"),
    [
        (WIDE, {}, EpisodeStop.DONE, 3),
        (Limits(3, 1000, 30.0), {}, EpisodeStop.DONE, 3),
        (Limits(2, 1000, 30.0), {}, EpisodeStop.TURN_LIMIT, 2),
        (Limits(8, AGAIN, 30.0), {}, EpisodeStop.TOKEN_LIMIT, 1),
        (Limits(8, AGAIN + 1, 30.0), {}, EpisodeStop.TOKEN_LIMIT, 2),
        (Limits(8, FIRST + 1, 30.0), {}, EpisodeStop.TOKEN_LIMIT, 1),
        (Limits(8, FIRST, 30.0), {}, EpisodeStop.OVERLONG, 0),
        (WIDE, {"breaks": ["start"]}, EpisodeStop.ENV_ERROR, 0),
        (WIDE, {"breaks": ["step"]}, EpisodeStop.ENV_ERROR, 1),
        (Limits(8, 1000, 0.02), {"waits": 30.0}, EpisodeStop.TIMEOUT, 0),
    ],
)
def test_an_episode_ends_for_the_reason_it_says(limits: Limits, toy: Any, stop: EpisodeStop, turns: int) -> None:
    trajectory, _ = episode("a", "b", "stop", limits=limits, **toy)
    assert (trajectory.stop_reason, len(trajectory.turns)) == (stop, turns)
    assert (trajectory.error is None) == (stop not in {EpisodeStop.ENV_ERROR, EpisodeStop.TIMEOUT})
    assert all(len(t.prompt_ids) + len(t.completion_ids) <= limits.tokens for t in trajectory.turns)


def test_an_error_says_what_the_environment_raised_or_how_long_it_took() -> None:
    assert episode("a", breaks=["step"])[0].error == "ValueError('no step today')"
    assert episode("a", limits=Limits(8, 1000, 0.02), waits=30.0)[0].error == "took over 0.02 s"


def test_a_reply_cut_by_max_tokens_is_closed_and_the_conversation_goes_on() -> None:
    trajectory, _ = episode("long winded", "stop", max_tokens=4)
    cut, after = trajectory.turns
    assert (cut.completion_ids.tolist(), cut.stop_reason) == (ids("long"), TurnStop.LENGTH)
    held = [*cut.prompt_ids.tolist(), *ids("long")]
    assert after.prompt_ids.tolist()[: len(held) + 2] == [*held, END, *ids("\n")]
    assert trajectory.messages[1]["content"] == "long"


def test_a_template_that_rewrites_history_opens_a_new_session_under_another_seed() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = FORGETFUL
    two = Limits(turns=2, tokens=1000, timeout_s=30.0)
    trajectory, engine = episode("<think>hm</think>a", renderer=Template(tokenizer), limits=two)
    first, second = (t.prompt_ids.tolist() for t in trajectory.turns)
    assert TOKENIZER.decode(second) == (
        "<|im_start|>user\ntask 3<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
        "<|im_start|>user\nyou said a<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [prompt for prompt, _ in engine.opened] == [first, second] and engine.read == [[], []]
    assert len({seed for _, seed in engine.opened}) == 2
    assert trajectory.turns[0].completion_ids.tolist() == [*ids("<think>hm</think>a"), END]
    prefix = trajectory.turns[1].prefix
    assert prefix is not None and (prefix.kind, prefix.at) == (BreakKind.THINKING_STRIPPED, len(first))


def test_what_an_engine_cannot_serve_is_the_end_of_the_episode_and_leaves_no_session_open() -> None:
    trajectory, _ = episode("a")
    assert (trajectory.stop_reason, len(trajectory.turns)) == (EpisodeStop.ENGINE_ERROR, 1)
    assert "all are said" in str(trajectory.error)


def test_a_bug_of_the_engine_rises_and_leaves_no_session_open() -> None:
    class Buggy(FakeEngine):
        async def step(self, session: Session, new_ids: Sequence[int], *_: Any, **__: Any) -> Completion:
            raise ZeroDivisionError("a bug")

    engine, empty = Buggy([]), Trajectory("toy", Task("t"), 0, 0, 0)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(play(Toy([]), empty, engine, CHATML, Sampling(), WIDE))
    assert engine.open_sessions == 0


class Odd:
    """Starts with whatever it is told to say; its start may already be the end."""

    def __init__(self, first: Observation) -> None:
        self.first = first

    async def start(self, task: Task) -> Observation:
        return self.first

    async def step(self, message: Any) -> Observation:
        return Observation(done=True)

    async def close(self) -> None: ...


def odd(first: Observation) -> Trajectory:
    empty = Trajectory("odd", Task("t"), 0, 0, 1)
    return asyncio.run(play(Odd(first), empty, Listening([[END]]), CHATML, Sampling(stop_ids=(END,)), WIDE))


def test_a_start_that_is_the_end_is_an_episode_without_turns_that_keeps_its_reward() -> None:
    done = odd(Observation([{"role": "user", "content": "hi"}], reward=0.5, done=True, metrics={"success": 1.0}))
    assert (done.stop_reason, done.turns, done.reward, done.metrics) == (EpisodeStop.DONE, [], 0.5, {"success": 1.0})


@pytest.mark.parametrize("messages", [[], [{"content": "no role"}]])
def test_messages_that_cannot_become_tokens_are_the_environment_s_failure(messages: list[Any]) -> None:
    failed = odd(Observation(messages))
    assert failed.stop_reason is EpisodeStop.ENV_ERROR and "RenderError" in str(failed.error)


def test_an_environment_that_fails_to_close_has_still_played_its_episode() -> None:
    trajectory, _ = episode("stop", breaks=("close",))
    assert (trajectory.stop_reason, trajectory.error) == (EpisodeStop.DONE, None)
    assert trajectory.metrics["close_failed"] == 1.0


def test_a_reward_that_is_no_number_is_the_environment_s_failure() -> None:
    failed = odd(Observation([{"role": "user", "content": "hi"}], reward=float("nan")))
    assert failed.stop_reason is EpisodeStop.ENV_ERROR and "found reward nan" in str(failed.error)


class Small(Listening):
    """Holds no more than so many tokens, and has no room at all the first `full` times it is asked."""

    def __init__(self, replies: Sequence[Sequence[int]], most: int, full: int = 0) -> None:
        super().__init__(replies)
        self.most = most
        self.full = full

    async def step(self, session: Session, new_ids: Sequence[int], *given: Any, **named: Any) -> Completion:
        self.full -= 1
        if self.full >= 0:
            raise EngineFull("no room now")
        if len(session.ids) + len(new_ids) > self.most:
            raise TooLong("no room ever")
        return await super().step(session, new_ids, *given, **named)


def small(most: int, full: int = 0) -> Trajectory:
    engine, empty = Small([[*ids("a"), END], [*ids("stop"), END]], most, full), Trajectory("toy", Task("t"), 0, 0, 1)
    asyncio.run(play(Toy([]), empty, engine, CHATML, Sampling(stop_ids=(END,)), WIDE))
    assert engine.open_sessions == 0
    return empty


@pytest.mark.parametrize(
    ("most", "stop", "turns"),
    [(10, EpisodeStop.OVERLONG, 0), (FIRST + 9, EpisodeStop.TOKEN_LIMIT, 1), (999, EpisodeStop.DONE, 2)],
)
def test_what_the_model_cannot_hold_ends_the_episode_as_a_limit_does(most: int, stop: EpisodeStop, turns: int) -> None:
    trajectory = small(most)
    assert (trajectory.stop_reason, len(trajectory.turns), trajectory.error) == (stop, turns, None)


def test_an_engine_without_room_is_asked_again_until_it_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.condense.patience.FIRST_S", 0.0)
    trajectory = small(999, full=3)
    assert (trajectory.stop_reason, len(trajectory.turns)) == (EpisodeStop.DONE, 2)
