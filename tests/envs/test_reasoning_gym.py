"""Questions of reasoning-gym: which ones come, how a reply is read, what it is worth."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from turnwise.envs import find
from turnwise.envs.reasoning_gym import ReasoningGym, env
from turnwise.envs.reasoning_gym.env import AGAIN, extract
from turnwise.envs.reasoning_gym.mix import MIXES
from turnwise.errors import ConfigError, DataError
from turnwise.types import Observation, Task

LEGS: dict[str, Any] = {"datasets": "leg_counting"}


def play(replies: list[str], task: Task | None = None, **args: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        env = ReasoningGym(**args)
        seen = [await env.start(task or next(iter(ReasoningGym.tasks(**args))))]
        for reply in replies:
            seen += [await env.step({"role": "assistant", "content": reply})]
        await env.close()
        return seen

    return asyncio.run(run())


def right(first: Observation) -> str:
    return str(first.oracle[0]["content"]).removeprefix("The answer is ").removesuffix(".")


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<answer>42</answer>", "42"),
        ("<answer>1</answer> or rather <answer>\n2\n3 </answer>.", "2\n3"),
        ("I think.\n42 \n\n", "42"),
        ("", ""),
        ("<answer>42", "<answer>42"),
    ],
)
def test_the_answer_stands_in_the_last_tags_or_the_last_line(reply: str, answer: str) -> None:
    assert extract(reply) == answer


def test_a_right_answer_is_worth_one_and_a_wrong_one_what_the_dataset_says() -> None:
    answer = right(play([], **LEGS)[0])
    won, lost = play([answer], **LEGS)[-1], play(["-1"], **LEGS)[-1]
    assert (won.reward, won.done, won.metrics["success"], won.metrics["success_leg_counting"]) == (1.0, True, 1.0, 1.0)
    assert (lost.reward < 1.0, lost.done, lost.metrics["success"]) == (True, True, 0.0)


def test_a_wrong_answer_may_be_tried_again() -> None:
    answer = right(play([], **LEGS)[0])
    seen = play(["-1", answer], **LEGS, tries=3)
    assert seen[1].messages == [{"role": "user", "content": AGAIN}] and not seen[1].done
    assert (seen[2].done, seen[2].reward, seen[2].metrics["tries"]) == (True, 1.0, 2.0)
    assert play(["-1", "-1", "-1"], **LEGS, tries=3)[-1].done


def test_every_dataset_of_the_mix_makes_questions_and_scores_answers() -> None:
    args = {
        "datasets": [part | ({"config": {}} if part["name"] == "zebra_puzzles" else {}) for part in MIXES["rg-mix"]]
    }
    tasks: dict[str, Task] = {}
    for task in islice(ReasoningGym.tasks(**args), 100):
        tasks.setdefault(task.data["dataset"], task)
    assert sorted(tasks) == ["arc_1d", "countdown", "cryptarithm", "sokoban", "zebra_puzzles"]
    for task in tasks.values():
        first = play([], task, **args)[0]
        assert play([f"<answer>{right(first)}</answer>"], task, **args)[-1].reward == 1.0
        assert play(["<answer>no idea</answer>"], task, **args)[-1].reward < 0.5


def test_a_mix_is_drawn_by_weight_and_each_dataset_goes_on_where_it_was() -> None:
    mix = [{"name": "leg_counting", "weight": 3}, {"name": "chain_sum", "config": {"max_terms": 2}}]
    found = [*islice(ReasoningGym.tasks(mix), 400)]
    assert Counter(t.data["dataset"] for t in found)["leg_counting"] == pytest.approx(300, abs=40)
    kinds: dict[str, list[int]] = {}
    for task in found:
        kinds.setdefault(task.key.rsplit("/", 1)[0], []).append(task.data["index"])
    assert sorted(kinds) == ["reasoning_gym/chain_sum-36953c/0", "reasoning_gym/leg_counting/0"]
    assert all(numbers == [*range(len(numbers))] for numbers in kinds.values())


def test_another_seed_asks_other_questions() -> None:
    asked = [play([], datasets="leg_counting", seed=seed)[0].messages[1]["content"] for seed in (0, 1, 0)]
    assert asked[0] == asked[2] != asked[1]


@pytest.mark.parametrize("failure", [TimeoutError("late"), DataError("wrong")], ids=repr)
def test_an_answer_that_breaks_the_score_is_worth_nothing(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        async def call(self, what: str, *given: Any, timeout_s: float | None = None) -> Any:
            if what == "ask":
                return ["1 + 1?", "2", ""]
            raise failure

    monkeypatch.setattr(env, "ENTRY", Broken())
    end = play(["2"], **LEGS)[-1]
    assert (end.reward, end.metrics["score_failed"], end.done) == (0.0, 1.0, True)


@pytest.mark.parametrize(
    ("datasets", "words"),
    [
        ("leg_countin", "found dataset 'leg_countin' (did you mean 'leg_counting'?)"),
        ([], "found datasets []"),
        ([{"weight": 1}], "found {'weight': 1} in datasets; expected name"),
        ([{"name": "gcd", "wieght": 1}], "expected name, and if wanted weight and config"),
        ([{"name": "gcd", "weight": 0}], "found weight 0 of gcd; expected a number above 0"),
    ],
)
def test_datasets_that_do_not_exist_are_refused(datasets: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find("reasoning_gym", {"datasets": datasets}).tasks()
    assert words in str(caught.value)


def test_a_missing_package_and_too_few_tries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="found tries 0"):
        ReasoningGym(tries=0)
    monkeypatch.setattr("turnwise.envs.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'turnwise\[reasoning-gym\]'"):
        ReasoningGym.tasks()
