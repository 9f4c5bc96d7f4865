"""Problems with a number as answer, and how answers are read."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.envs import TaskSet, find
from turnwise.envs.math import Math, env
from turnwise.envs.worker import Worker
from turnwise.errors import ConfigError
from turnwise.types import Observation

FILE = Path(__file__).parents[2] / "examples/math.jsonl"
AIME = {"problem": "Find the remainder of 2024 divided by 1000.", "answer": "024"}


def written(place: Path, *rows: Any) -> str:
    (place / "own.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return str(place / "own.jsonl")


def play(reply: str, path: str, **args: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        env = Math(path, **args)
        seen = [await env.start(next(iter(Math.tasks(path, **args))))]
        seen += [await env.step({"role": "assistant", "content": reply})]
        await env.close()
        return seen

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("reply", "right", "answered"),
    [
        ("\\boxed{24}", True, True),
        ("\\boxed{024}", True, True),
        ("First 25, then $\\boxed{\\frac{48}{2}}$.", True, True),
        ("\\boxed{7}, no: \\boxed{24}", True, True),
        ("\\boxed{24}, no: \\boxed{7}", False, True),
        ("\\boxed{24", False, False),
        ("The answer is 24.", True, True),
        ("The answer is 25.", False, True),
        ("I do not know.", False, False),
        ("", False, False),
    ],
)
def test_a_boxed_answer_counts_and_else_the_last_number(
    reply: str, right: bool, answered: bool, tmp_path: Path
) -> None:
    end = play(reply, written(tmp_path, AIME))[-1]
    assert (end.done, end.reward, end.metrics["answered"]) == (True, float(right), float(answered))


def test_an_episode_starts_with_the_problem(tmp_path: Path) -> None:
    first = play("24", written(tmp_path, AIME))[0]
    assert [m["role"] for m in first.messages] == ["system", "user"]
    assert first.messages[1]["content"] == AIME["problem"]
    assert first.oracle == [{"role": "system", "content": "The answer is 024."}]
    assert [m["role"] for m in play("24", written(tmp_path, AIME), system="")[0].messages] == ["user"]


def test_an_answer_that_cannot_be_read_in_time_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Worker(env.CHECK.place, 0.5)
    quick.run("1", "1", timeout_s=60.0)
    monkeypatch.setattr(env, "CHECK", quick)
    end = play("\\boxed{(10^{10})!}", written(tmp_path, AIME))[-1]
    assert (end.reward, end.metrics["timeout"]) == (0.0, 1.0)
    quick.close()


def test_fields_have_the_names_that_a_file_gives_them(tmp_path: Path) -> None:
    path = written(tmp_path, {"q": "1 + 1?", "a": 2}, {"q": "2 + 2?", "a": "4"})
    found = [*Math.tasks(path, question="q", answer="a")]
    assert [dict(task.data) for task in found] == [
        {"question": "1 + 1?", "answer": "2"},
        {"question": "2 + 2?", "answer": "4"},
    ]
    assert len({task.key for task in found}) == 2


def test_a_problem_has_its_key_wherever_it_stands(tmp_path: Path) -> None:
    one, two = {"problem": "1 + 1?", "answer": 2}, {"problem": "2 + 2?", "answer": 4}
    (tmp_path / "b").mkdir()
    keys = [task.key for task in Math.tasks(written(tmp_path, one, two))]
    assert [task.key for task in Math.tasks(written(tmp_path / "b", two, one))] == keys[::-1]


def test_the_file_that_ships_is_right_and_has_both_sides() -> None:
    tasks = TaskSet(find("math", {"path": str(FILE)}), 0.2, 0)
    assert len([*tasks.environment.tasks()]) == 60 and 8 <= len(tasks.holdout(60)) <= 16
    for task in tasks.environment.tasks():
        assert task.data["answer"] in list("0123456789")


def test_a_dataset_is_loaded_by_name_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_dataset(name: str, config: str | None, split: str) -> list[dict[str, str]]:
        asked.append((name, config, split))
        return [AIME]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset, __spec__="here"))
    found = [*Math.tasks("someone/aime", split="test", config="2024")]
    assert asked == [("someone/aime", "2024", "test")] and found[0].data["answer"] == "024"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "found no problem in"),
        ("{", "found no JSON in line 1 of"),
        ("[1]", "found '[1]' in line 1 of"),
        ('{"problem": "1?"}', "found None under 'answer' in"),
        ('{"problem": "1?", "answer": 1.5}', "name the right one as env.args.answer"),
    ],
)
def test_a_file_that_holds_no_problems_is_refused(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(line)
    with pytest.raises(ConfigError) as caught:
        Math.tasks(str(tmp_path / "own.jsonl"))
    assert words in str(caught.value)


def test_a_file_that_is_not_there_and_a_missing_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"found no file nowhere\.jsonl"):
        Math.tasks("nowhere.jsonl")
    monkeypatch.setattr("turnwise.envs.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"found no package 'datasets'.*pip install 'datasets'"):
        Math.tasks("someone/aime-that-is-not-there")
    with pytest.raises(ConfigError, match=r"pip install 'turnwise\[math\]'"):
        Math(str(FILE))
