"""What the README and examples/ show runs as shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.config import load
from turnwise.loop import train

ROOT = Path(__file__).parents[1]


def test_the_readme_shows_the_example_environment_as_it_stands() -> None:
    source = (ROOT / "examples/guess.py").read_text()
    assert f"```python\n{source}```" in (ROOT / "README.md").read_text()
    assert len([line for line in source.splitlines() if line.strip()]) <= 23


EXAMPLES = ["guess", "recall", "recall-compaction", "forth", "echo", "passages", "condense", "math", "reasoning_gym"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_environments_train(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    small = ["--out", str(tmp_path), "--train.steps", "2", "--train.tasks", "2", "--eval.tasks", "5"]
    summary = train(load(["@", f"examples/{name}.toml", *small]))
    assert summary["steps"] == 2 and summary["n"] == 5


@pytest.mark.real
def test_the_demo_s_config_takes_steps_on_smollm2(tmp_path: Path) -> None:
    size = ["--train.steps", "2", "--train.tasks", "1", "--env.group", "2", "--env.max_turns", "2", "--eval.tasks", "0"]
    words = ["@", str(ROOT / "examples/demo.toml"), "--model", "smollm2"]
    learn = ["--advantage.type", "none", "--train.updates", "1"]  # two siblings rarely differ: keep their tokens
    config = load([*words, *size, *learn, "--out", str(tmp_path)])
    assert train(config)["steps"] == 2
    line = (tmp_path / "demo/metrics.jsonl").read_text().splitlines()[-1]
    assert '"mismatch/max": ' in line and '"samples/tokens_trained": 0.0' not in line
