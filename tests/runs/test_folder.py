"""The run folder: what is logged comes back, and neither a kill nor a rewind spoils it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.errors import RunError
from turnwise.runs import RunFolder, checkpoint


def started(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", 'name = "run"\n')


def test_a_new_run_has_its_config_and_its_subfolders(tmp_path):
    folder = started(tmp_path)
    assert folder.config.read_text() == 'name = "run"\n'
    assert sorted(p.name for p in folder.path.iterdir()) == ["checkpoints", "config.toml", "rollouts"]


def test_a_folder_that_holds_a_run_is_not_started_again(tmp_path):
    started(tmp_path)
    with pytest.raises(RunError, match=r"already holds a run.*--resume.*--name"):
        started(tmp_path)


def test_a_folder_without_a_config_is_not_a_run(tmp_path):
    with pytest.raises(RunError, match=r"holds no run.*config\.toml"):
        RunFolder.open(tmp_path)


def test_logged_numbers_come_back_in_order(tmp_path):
    folder = started(tmp_path)
    folder.log(0, {"eval/success": 0.125})
    folder.log(1, {"reward/mean": 0.1, "loss/total": -2e-9})
    expected = [{"step": 0, "eval/success": 0.125}, {"step": 1, "reward/mean": 0.1, "loss/total": -2e-9}]
    assert RunFolder.open(folder.path).metrics() == expected


def test_nan_is_logged_as_null_and_an_event_names_it(tmp_path):
    folder = started(tmp_path)
    folder.log(3, {"loss/total": float("nan"), "policy/entropy": float("-inf"), "reward/mean": 1.0})
    line = (folder.path / "metrics.jsonl").read_text()
    assert line == '{"step": 3, "loss/total": null, "policy/entropy": null, "reward/mean": 1.0}\n'
    event = folder.events()[0]
    assert event.pop("time").endswith("+00:00")
    assert event == {"kind": "non_finite", "step": 3, "values": {"loss/total": "nan", "policy/entropy": "-inf"}}


@pytest.mark.parametrize("torn", ['{"step": 2, "rew', '{"step": 2}', "\x00\x00"])
def test_a_torn_last_line_is_dropped_and_counted_when_read(tmp_path, torn):
    folder = started(tmp_path)
    folder.log(1, {"reward/mean": 0.5})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert folder.metrics() == [{"step": 1, "reward/mean": 0.5}]
    assert folder.torn == {"metrics.jsonl": 1}


def test_the_next_line_is_never_glued_to_a_torn_one(tmp_path):
    folder = started(tmp_path)
    folder.log(1, {})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"ste')
    folder.log(2, {})
    assert (folder.path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'
    assert [(e["kind"], e["file"], e["bytes"]) for e in folder.events()] == [("torn_line", "metrics.jsonl", 5)]


def test_a_damaged_line_in_the_middle_is_an_error_that_says_where(tmp_path):
    folder = started(tmp_path)
    (folder.path / "metrics.jsonl").write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2: found .*expected one JSON object"):
        folder.metrics()


def test_rewinding_forgets_what_came_after_the_step(tmp_path):
    folder = started(tmp_path)
    for step in range(5):
        folder.log(step, {"reward/mean": step / 4})
        folder.rollout(step).write_bytes(b"")
    checkpoint.save(folder, 2, lambda p: None, keep=5)
    checkpoint.save(folder, 4, lambda p: None, keep=5)
    folder.rewind(2)
    assert folder.metrics() == [{"step": step, "reward/mean": step / 4} for step in range(3)]
    assert sorted(p.name for p in folder.rollouts.iterdir()) == [f"step-00000{step}.parquet" for step in range(3)]
    assert sorted(p.name for p in folder.checkpoints.iterdir()) == ["step-000002", "undone-step-000004"]


def test_a_rewind_is_an_event_with_what_it_dropped(tmp_path):
    folder = started(tmp_path)
    folder.log(1, {})
    folder.log(2, {})
    for path in (folder.rollout(2), folder.tokens(1), folder.tokens(2)):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    folder.rewind(1)
    assert [p.name for p in folder.token_tables.iterdir()] == ["step-000001.parquet"]
    (event,) = folder.events()
    del event["time"]
    assert event == {
        "kind": "rewind",
        "step": 1,
        "metrics_dropped": 1,
        "rollouts_dropped": ["step-000002.parquet"],
        "tokens_dropped": ["step-000002.parquet"],
        "checkpoints_renamed": [],
    }


def test_a_json_file_is_replaced_whole(tmp_path):
    folder = started(tmp_path)
    folder.write_json("summary.json", {"success": 0.5})
    path = folder.write_json("summary.json", {"success": [0.25, float("inf")]})
    assert json.loads(path.read_text()) == {"success": [0.25, None]}
    assert not list(folder.path.glob(".tmp-*"))
