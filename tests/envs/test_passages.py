"""Questions that need a few of many passages."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from turnwise.envs import TaskSet, find
from turnwise.envs.passages import Passages
from turnwise.envs.passages.env import NO_CALL, NO_WORD, TOOLS
from turnwise.envs.passages.world import FILLER, Shape, make
from turnwise.errors import ConfigError
from turnwise.types import Message, Observation, Task

SMALL: dict[str, Any] = {"passages": 6, "hops": 3, "rivals": 2, "sentences": 1}


def task(**args: Any) -> Task:
    return next(iter(Passages.tasks(**{**SMALL, **args})))


def called(*calls: tuple[str, Any]) -> Message:
    made = [{"id": f"c{n}", "function": {"name": name, "arguments": given}} for n, (name, given) in enumerate(calls)]
    return {"role": "assistant", "content": "", "tool_calls": made}


def play(replies: Sequence[Message], **args: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        env = Passages(**{**SMALL, **args})
        seen = [await env.start(task(**args))]
        for reply in replies:
            seen += [await env.step(reply)]
        await env.close()
        return seen

    return asyncio.run(run())


def test_a_chain_of_facts_leads_from_the_question_to_the_answer() -> None:
    world = make(0, Shape(**SMALL, names=100, colours=8))
    assert world.question == "What colour is the gate of the city where the one that Mivel works for lives?"
    assert world.chain == [
        "Mivel works for Lusun.",
        "Lusun lives in Ludisburg.",
        "The gate of Ludisburg is yellow.",
    ]
    assert world.answer == "yellow"
    assert [fact in world.passages[place] for fact, place in zip(world.chain, world.needed, strict=True)] == [True] * 3


def told(passage: str) -> list[str]:
    """The sentences of a passage that are no filler."""
    return [said for said in re.findall(r"[^.]+\.", passage) if said.strip() not in FILLER]


@pytest.mark.parametrize("hops", [1, 2, 3, 5])
def test_each_fact_stands_in_one_passage_and_the_chain_in_those_that_are_needed(hops: int) -> None:
    for number in range(30):
        world = make(number, Shape(20, hops, 10, 2, 40, 3))
        facts = [fact.strip() for passage in world.passages for fact in told(passage)]
        assert len(set(facts)) == len(facts) == 10 + hops
        assert [told(world.passages[place])[0].strip() for place in world.needed] == world.chain
        subjects = [fact.split()[3 if fact.startswith("The gate") else 0] for fact in facts]
        assert len(set(subjects)) == len(subjects)
        assert world.chain[-1].endswith(f" is {world.answer}.")


def test_passages_are_read_in_order_or_by_number() -> None:
    seen = play(
        [
            called(("read_passage", "{}")),
            called(("read_passage", {"number": 5}), ("read_passage", "")),
            called(("read_passage", {"number": 9})),
        ]
    )
    assert seen[0].tools == TOOLS and seen[0].messages[1]["content"].endswith("lives? There are 6 passages.")
    said = [[m["content"].split(":")[0] for m in one.messages] for one in seen[1:]]
    assert said == [["Passage 1"], ["Passage 5", "There are passages 1 to 6."], ["There are passages 1 to 6."]]
    assert seen[1].messages[0] | {"content": ""} == {
        "role": "tool",
        "tool_call_id": "c0",
        "name": "read_passage",
        "content": "",
    }


def test_passages_are_read_without_tools_in_mode_words() -> None:
    seen = play([{"role": "assistant", "content": said} for said in ("Next!", "hm", "next", "red")], mode="words")
    assert seen[0].tools is None
    assert [m["content"].split(":")[0] for one in seen[1:] for m in one.messages] == ["Passage 1", NO_WORD, "Passage 2"]
    assert (seen[-1].done, seen[-1].metrics["read"], seen[-1].metrics["invalid"]) == (True, 2.0, 1.0)


@pytest.mark.parametrize(
    ("text", "right"),
    [("yellow", True), ("The gate is Yellow.", True), ("yellow or red", False), ("red", False), ("yellowish", False)],
)
def test_the_right_colour_and_no_other_is_rewarded(text: str, right: bool) -> None:
    told = play([called(("answer", json.dumps({"text": text})))])[-1]
    whole = play([{"role": "assistant", "content": text}], mode="all")[-1]
    assert (told.done, told.reward, told.metrics["success"]) == (True, float(right), float(right))
    assert (whole.done, whole.reward, whole.metrics["success"]) == (True, float(right), float(right))


def test_all_passages_stand_before_the_question_in_mode_all() -> None:
    (first,) = play([], mode="all")
    given = task().data
    assert [m["role"] for m in first.messages] == ["system", "user", "user"] and first.tools is None
    assert [line.split(": ", 1)[1] for line in first.messages[1]["content"].splitlines()] == given["passages"]
    assert first.messages[2]["content"] == given["question"]
    assert first.oracle[0]["content"] == f"Only this matters: {' '.join(given['chain'])}"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"role": "assistant", "content": "yellow"}, NO_CALL),
        (called(("fly", {})), f"No tool fly. {NO_CALL}"),
        (called(("answer", {"text": 3})), "answer takes one text, 'text'."),
        (called(("answer", "{")), "answer takes one text, 'text'."),
        (called(("read_passage", {"number": "1"})), "There are passages 1 to 6."),
        (called(("read_passage", {"number": True})), "There are passages 1 to 6."),
        (called(("read_passage", "[")), "There are passages 1 to 6."),
    ],
)
def test_what_is_no_call_of_a_tool_is_told_so_and_counted(reply: Message, said: str) -> None:
    seen = play([reply], max_calls=1)[-1]
    assert seen.messages[0]["content"] == said
    assert (seen.done, seen.reward, seen.metrics["invalid"], seen.metrics["answered"]) == (True, 0.0, 1.0, 0.0)


def test_what_was_read_is_measured() -> None:
    needed = task().data["needed"]
    calls = [("read_passage", {"number": place + 1}) for place in needed[:2] + needed[:1]]
    end = play([called(*calls, ("answer", {"text": "red"}))])[-1]
    assert (end.reward, end.metrics["read"], end.metrics["needed_read"]) == (0.0, 2.0, 2 / 3)
    assert play([called(*calls, ("answer", {"text": "red"}))], partial=0.3)[-1].reward == pytest.approx(0.2)
    assert play([called(*calls, ("answer", {"text": "yellow"}))], partial=0.3)[-1].reward == 1.0


def test_a_chain_is_on_one_side_of_the_split() -> None:
    small = {"passages": 2, "hops": 1, "rivals": 0, "sentences": 0, "names": 3, "colours": 3}
    tasks = TaskSet(find("passages", small), 0.3, 0)
    train, held = ({t.split for t in found} for found in (islice(tasks.train(), 200), tasks.holdout(100)))
    assert train and held and not train & held and len(train | held) == 9
    alone = find("passages", {**small, "split": "task"})
    assert {t.split for t in islice(alone.tasks(), 9)} == {None}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"mode": "one"}, "found mode 'one'"),
        ({"split": "word"}, "split 'word'"),
        ({"hops": 0}, "found hops 0"),
        ({"passages": 4}, "found passages 4 for hops 3 and rivals 2; expected at least 5"),
        ({"colours": 1}, "found colours 1; expected 2 to 8"),
        ({"names": 4}, "found names 4 for hops 3 and rivals 2; expected 5 to 256"),
        ({"max_calls": 0}, "found max_calls 0"),
        ({"partial": 2.0}, "partial 2.0"),
    ],
)
def test_arguments_out_of_range_are_refused(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Passages(**find("passages", {**SMALL, **args}).args)
    assert words in str(caught.value)
