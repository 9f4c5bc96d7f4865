"""An environment is found by id, and its arguments are checked by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise.envs import find
from turnwise.envs.find import BUILT_IN
from turnwise.errors import ConfigError

TOY = f"{Path(__file__).with_name('toy_env.py')}:Toy"


def refusal(id: str, args: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        find(id, args or {})
    return str(caught.value)


def test_a_built_in_environment_is_found_by_its_name() -> None:
    found = find("babyai", {"level": "BabyAI-GoToObj-v0", "max_steps": 5})
    assert next(iter(found.tasks())).key == "BabyAI-GoToObj-v0/0"
    assert vars(found.new())["max_steps"] == 5


def test_each_new_env_is_another_one() -> None:
    found = find("babyai", {})
    assert found.new() is not found.new()


def test_a_class_of_an_importable_module_is_found() -> None:
    assert find("turnwise.envs.babyai:Babyai", {}).make is find("babyai", {}).make


def test_a_class_of_a_file_is_found_from_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    found = find("toy_env.py:Toy", {"size": 2})
    assert [task.key for task in found.tasks()] == ["toy/0", "toy/1"]
    assert found.make is find(TOY, {}).make


def test_a_file_with_dataclasses_and_late_annotations_is_found(tmp_path: Path) -> None:
    text = Path(__file__).with_name("toy_env.py").read_text()
    mine = "\nfrom dataclasses import dataclass\n\n@dataclass\nclass Extra:\n    n: int = 0\n"
    (tmp_path / "mine.py").write_text(text + mine)
    assert find(f"{tmp_path}/mine.py:Toy", {}).make.__name__ == "Toy"


def test_a_file_that_fails_does_so_with_its_own_error_each_time(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('mine')\n")
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            find(f"{tmp_path}/broken.py:Toy", {})


def test_a_module_that_misses_an_import_fails_with_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        find("needs_more:Toy", {})


def test_an_unknown_id_is_refused_with_the_nearest_and_how_to_name_your_own() -> None:
    assert refusal("babyia") == (
        f"found environment 'babyia'; expected one of {', '.join(sorted(BUILT_IN))} (did you mean 'babyai'?), "
        "or name your own as 'package.module:Class' or 'file.py:Class'"
    )


def test_places_that_do_not_exist_are_refused() -> None:
    assert "found no module 'nowhere'" in refusal("nowhere.at.all:Toy")
    assert "found no module 'turnwise.nowhere'" in refusal("turnwise.nowhere:Toy")
    assert "found no file" in refusal("nowhere.py:Toy")


def test_an_unknown_class_is_refused_with_the_nearest() -> None:
    assert "found no class 'Tory'" in refusal(TOY.replace(":Toy", ":Tory"))
    assert "did you mean 'Toy'?" in refusal(TOY.replace(":Toy", ":Tory"))


def test_a_class_that_is_no_environment_is_refused_with_what_it_lacks() -> None:
    assert "lacks ['tasks', 'step', 'close']" in refusal(TOY.replace(":Toy", ":Half"))


def test_an_unknown_argument_is_refused_with_the_nearest_and_all_there_are() -> None:
    assert refusal("babyai", {"levl": "x"}) == (
        "babyai takes no argument 'levl' (did you mean 'level'?); "
        "it takes ['level', 'max_steps', 'time_cost', 'on_invalid']"
    )
