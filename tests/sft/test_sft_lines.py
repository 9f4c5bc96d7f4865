"""What a file of conversations may hold, and what is said of one that may not."""

from __future__ import annotations

import json

import pytest
from chats import CALL, PLAIN, TOOLED, said, user, write

from turnwise.envs import TaskSet
from turnwise.envs.tasks import side
from turnwise.errors import ConfigError, DataError
from turnwise.sft.lines import mistake, read, source

TOOL_SAYS = {"role": "tool", "tool_call_id": "c1", "content": "x"}


@pytest.mark.parametrize("record", [PLAIN, TOOLED, {"messages": [user("a"), said("b")], "more": 1}])
def test_a_good_conversation_has_no_mistake(record):
    assert mistake(record) is None


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ([], "found no messages"),
        ({"messages": []}, "found no messages"),
        ({"messages": [user("a")]}, "found a last message by user"),
        ({"messages": [said("a")]}, "an assistant that answers nobody"),
        ({"messages": [user("a"), said("b"), said("c")]}, "an assistant that answers nobody"),
        ({"messages": [user("a"), said("")]}, "message 1: found an assistant who says nothing"),
        ({"messages": [{"role": "bot", "content": "a"}]}, "message 0: found role 'bot'"),
        ({"messages": ["a"]}, "message 0: found role None"),
        ({"messages": [user("a"), TOOL_SAYS, said("b")]}, "an answer to call 'c1', which nobody made"),
        ({"messages": [{"role": "user", "content": 3}, said("b")]}, "message 0: found content of type int"),
        ({"messages": [user("a"), said("b", tool_calls=[{"function": {}}])]}, "without a name"),
        ({"messages": [user("a"), said("b", tool_calls="look")]}, "message 1: "),
        ({"messages": [user("a"), said("b", failed_calls=[{"raw": "x"}])]}, "could not be read"),
        ({**PLAIN, "tools": [{"function": {}}]}, "expected a list of functions with names"),
        ({**PLAIN, "tools": "look"}, "expected a list of functions with names"),
    ],
)
def test_a_mistake_says_where_it_is_and_what_was_expected(record, found):
    assert found in mistake(record)


@pytest.mark.parametrize("arguments", ['{"at": ', "[1]", "null"])
def test_arguments_that_are_no_object_are_a_mistake(arguments):
    call = {**CALL, "function": {"name": "look", "arguments": arguments}}
    assert "expected a JSON object" in mistake({"messages": [user("a"), said("", tool_calls=[call])]})


def test_a_broken_line_is_named_with_its_file_and_number(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(PLAIN) + "\n\n{oops\n")
    with pytest.raises(DataError, match=r"data\.jsonl, line 3: found '\{oops"):
        list(read(path))
    path.write_text(json.dumps({"messages": [user("a")]}) + "\n")
    with pytest.raises(DataError, match=r"line 1: found a last message by user"):
        list(read(path))


def test_a_file_that_is_not_there_or_empty_is_told(tmp_path):
    with pytest.raises(ConfigError, match="found no file"):
        list(source([str(tmp_path / "no.jsonl")]).tasks())
    with pytest.raises(DataError, match="at least one line"):
        list(source([write(tmp_path / "data.jsonl", [])]).tasks())


def test_conversations_of_one_task_stay_on_one_side_of_the_split(tmp_path):
    records = [{**PLAIN, "metadata": {"id": f"{n}#{k}", "task": f"t/{n}"}} for n in range(40) for k in range(3)]
    held = TaskSet(source([write(tmp_path / "data.jsonl", records)]), 0.3, 0).holdout(1000)
    numbers = [task.key.split("#")[0] for task in held]
    assert len(held) == 3 * len(set(numbers)) > 0


def test_tasks_that_one_split_left_are_split_anew(tmp_path):
    left = [n for n in range(200) if side(f"t/{n}", 0.2, 0) == "train"]
    records = [{**PLAIN, "metadata": {"id": f"{n}", "task": f"t/{n}"}} for n in left]
    held = TaskSet(source([write(tmp_path / "data.jsonl", records)]), 0.2, 0).holdout(1000)
    assert 0.1 < len(held) / len(left) < 0.3
