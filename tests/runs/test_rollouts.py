"""Rollout files give back equal trajectories, whatever happened in them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.errors import DataError
from turnwise.runs import rollouts
from turnwise.types import Attribution, Break, BreakKind, EpisodeStop, Event, Support, Task, Trajectory, Turn, TurnStop

NUMBERS = st.dictionaries(st.text(max_size=4), st.floats(allow_nan=False), max_size=2)
TEXT = st.text(max_size=8)
ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
PREFIXES = st.builds(Break, st.sampled_from(BreakKind), st.integers(0, 9), st.integers(0, 99), TEXT, TEXT)
JSON = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT | st.lists(TEXT, max_size=2), max_size=3)


def ids(draw: st.DrawFn, most: int) -> np.ndarray:
    return np.array(draw(st.lists(st.integers(0, 9), max_size=most)), np.int32)


def grown(draw: st.DrawFn, turns: list[Turn]) -> np.ndarray:
    """A prompt that repeats the last turn, or its beginning, or nothing, and then goes on."""
    history = np.concatenate([turns[-1].prompt_ids, turns[-1].completion_ids]) if turns else np.zeros(0, np.int32)
    keep = draw(st.sampled_from([len(history), max(len(history) - 2, 0), 0]))
    return np.concatenate([history[:keep], ids(draw, 4)])


@st.composite
def attributions(draw: st.DrawFn, tokens: int) -> Attribution:
    names = draw(st.lists(st.tuples(ROLES, st.none() | TEXT), max_size=3))
    message = draw(st.lists(st.integers(-1, 2), min_size=tokens, max_size=tokens))
    body = draw(st.lists(st.integers(-1, 1), min_size=tokens, max_size=tokens))
    roles, tools = tuple(n[0] for n in names), tuple(n[1] for n in names)
    return Attribution(np.array(message, np.int32), np.array(body, np.int8), roles, tools)


@st.composite
def supports(draw: st.DrawFn, tokens: int) -> Support:
    return Support.stack([ids(draw, 3) for _ in range(tokens)])


def compacted(at: int, layers: int = 1, slots: int = 2) -> Event:
    kept = np.arange(layers * 2 * slots, dtype=np.int16).reshape(layers, 2, slots)
    return Event(at, 3, at - 2, "match", kept, np.arange(at, dtype=np.int32), before=at, after=slots + 5, residual=0.5)


@st.composite
def next_turns(draw: st.DrawFn, turns: list[Turn]) -> Turn:
    prompt, completion = grown(draw, turns), ids(draw, 4)
    size = len(completion)
    logprobs = draw(st.lists(st.floats(-9, 0, width=32), min_size=size, max_size=size))
    return Turn(
        prompt_ids=prompt,
        completion_ids=completion,
        logprobs=np.array(logprobs, np.float32),
        policy_versions=np.full(size, draw(st.integers(0, 5)), np.int32),
        stop_reason=draw(st.sampled_from(TurnStop)),
        attribution=draw(st.none() | attributions(len(prompt))),
        support=draw(st.none() | supports(size)),
        events=tuple(compacted(at, slots=at % 3) for at in draw(st.lists(st.integers(5, 9), max_size=2))),
        temperature=draw(st.floats(0.1, 2.0)),
        agent=draw(st.sampled_from(["main", "main", "critic"])),
        reward=draw(st.floats(-1, 1)),
        metrics=draw(NUMBERS),
        prefix=draw(st.none() | PREFIXES),
        injected=draw(
            st.none() | st.lists(st.booleans(), min_size=size, max_size=size).map(lambda x: np.array(x, np.bool_))
        ),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    turns: list[Turn] = []
    for _ in range(draw(st.integers(0, 4))):
        turns.append(draw(next_turns(turns)))
    return Trajectory(
        env=draw(TEXT),
        task=Task(draw(TEXT), draw(JSON)),
        group=draw(st.integers(0, 3)),
        sibling=draw(st.integers(0, 3)),
        seed=draw(st.integers(-(2**63), 2**63 - 1)),
        turns=turns,
        messages=draw(st.lists(JSON, max_size=2)),
        oracle=draw(st.lists(JSON, max_size=2)),
        reward=draw(st.floats(allow_nan=False)),
        metrics=draw(NUMBERS),
        stop_reason=draw(st.sampled_from(EpisodeStop)),
        error=draw(st.none() | TEXT),
        seconds=draw(NUMBERS),
    )


def plain(value: Any) -> Any:
    """Nested tuples that compare whole, arrays with their types."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, (Trajectory, Turn, Task, Attribution, Support, Event)):
        return tuple(plain(getattr(value, f.name)) for f in fields(value))
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def one(**changes: Any) -> Trajectory:
    return Trajectory("env", Task("key"), group=0, sibling=1, seed=2, **changes)


def long_turn(prompt_ids: np.ndarray, messages: int) -> Turn:
    size = 40
    owners = np.arange(len(prompt_ids), dtype=np.int32) // 50
    known = Attribution(owners, np.ones(len(prompt_ids), np.int8), ("user",) * messages, (None,) * messages)
    completion = np.arange(size, dtype=np.int32)
    versions = np.zeros(size, np.int32)
    return Turn(prompt_ids, completion, np.zeros(size, np.float32), versions, TurnStop.STOP, known)


def episode(turns: int) -> Trajectory:
    prompts = [np.zeros(60, np.int32)]
    for _ in range(turns - 1):
        prompts.append(np.concatenate([prompts[-1], np.arange(40, dtype=np.int32), np.ones(60, np.int32)]))
    return one(turns=[long_turn(p, 2 * i) for i, p in enumerate(prompts)])


@settings(max_examples=60, deadline=None)
@given(st.lists(trajectories(), max_size=4))
def test_what_is_saved_comes_back_equal(tmp_path_factory, saved):
    path = tmp_path_factory.getbasetemp() / "step-000001.parquet"
    rollouts.save(path, 1, saved)
    assert plain(rollouts.load(path)) == plain(saved)


def test_a_grown_prompt_is_stored_once(tmp_path):
    saved = [episode(turns=12)]
    path = tmp_path / "step-000001.parquet"
    rollouts.save(path, 1, saved)
    turns = pq.read_table(path)["turns"][0].as_py()
    assert [t["prompt_shared"] for t in turns] == [0, *range(100, 1200, 100)]
    assert [len(t["prompt_ids"]) for t in turns] == [60] * 12
    assert [len(t["attribution"]["message"]) for t in turns] == [60] + [100] * 11
    assert [len(t["attribution"]["roles"]) for t in turns] == [0] + [2] * 11
    assert plain(rollouts.load(path)) == plain(saved)


def calls(work: Callable[[], object]) -> int:
    """How many functions of Python a piece of work calls."""
    counts = Counter[str]()
    sys.setprofile(lambda frame, event, arg: counts.update([event]))
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts["call"]


def test_twice_as_many_episodes_take_at_most_twice_as_many_calls_to_save_and_load(tmp_path):
    path = tmp_path / "step-000001.parquet"

    def there_and_back(episodes: int) -> None:
        rollouts.save(path, 1, [episode(turns=12)] * episodes)
        rollouts.load(path)

    there_and_back(1)  # what is imported or made once
    few, many = calls(lambda: there_and_back(32)), calls(lambda: there_and_back(64))
    assert many <= 2 * few


def test_extra_columns_stand_beside_the_trajectories(tmp_path):
    path = tmp_path / "step-000004.parquet"
    rollouts.save(path, 4, [one(), one()], columns={"difficulty": [0.5, None], "level": ["a", "b"]})
    table = pq.read_table(path, columns=["step", "difficulty", "level"])
    assert table.to_pydict() == {"step": [4, 4], "difficulty": [0.5, None], "level": ["a", "b"]}
    assert rollouts.load(path) == [one(), one()]


@pytest.mark.parametrize(
    ("columns", "said"),
    [({"reward": [1.0]}, "'reward', which a rollout file already has"), ({"x": []}, "'x' has 0 values, expected 1")],
)
def test_extra_columns_that_do_not_fit_are_refused(tmp_path, columns, said):
    with pytest.raises(DataError, match=said):
        rollouts.save(tmp_path / "step-000001.parquet", 1, [one()], columns=columns)
    assert not list(tmp_path.iterdir())


def test_lone_surrogates_of_a_tool_call_are_kept(tmp_path: Path):
    said = one(messages=[{"role": "assistant", "content": "\ud83d"}], error="broke at \udcff")
    path = tmp_path / "step-000001.parquet"
    rollouts.save(path, 1, [said])
    (loaded,) = rollouts.load(path)
    assert (loaded.messages, loaded.error) == (said.messages, "broke at \\udcff")


def test_what_json_cannot_say_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match=r"env 'key' \(group 0, sibling 1\).*a set.*expected"):
        rollouts.save(tmp_path / "step-000001.parquet", 1, [one(messages=[{"role": "user", "content": {1}}])])


def test_a_turn_stores_the_events_that_are_new_in_it(tmp_path):
    first, second = (compacted(at, layers=4, slots=100) for at in (200, 300))
    turns = [episode(turns=1).turns[0] for _ in range(3)]
    for turn, events in zip(turns, [(first,), (first, second), (first, second)], strict=True):
        turn.events = events
    rollouts.save(tmp_path / "step-000001.parquet", 1, [one(turns=turns)])
    (loaded,) = rollouts.load(tmp_path / "step-000001.parquet")
    assert [t.events for t in loaded.turns] == [t.events for t in turns]
    stored = pq.read_table(tmp_path / "step-000001.parquet")["turns"].combine_chunks().flatten().field("events")
    assert [text is None for text in stored.to_pylist()] == [False, False, True]


def test_a_seed_beyond_64_bits_is_refused(tmp_path):
    big = Trajectory("env", Task("key"), group=0, sibling=0, seed=2**63)
    with pytest.raises(DataError, match="seed 9223372036854775808, expected a signed 64-bit number"):
        rollouts.save(tmp_path / "step-000001.parquet", 1, [big])
