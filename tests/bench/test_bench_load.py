"""`turnwise bench load` against a real server of the tiny model: clients misbehave, and nothing is lost."""

from __future__ import annotations

import json

from turnwise.cli.main import main

SMALL = "--sessions 8 --turns 3 --harm 0.6 --max_cache_mb 1"


def test_conversations_end_as_in_a_quiet_run_whatever_clients_do(capsys, tmp_path):
    path = tmp_path / "load.json"
    assert main(["bench", "load", *SMALL.split(), "--json", str(path)]) == 0
    (case,) = json.loads(path.read_text())["cases"]
    assert (case["completed"], case["equal_to_quiet"], case["undocumented_statuses"]) == (8, 8, 0)
    assert 0 < case["cache_peak_mb"] <= case["cache_limit_mb"] <= 1
    assert case["events"] > 0 and sum(case[harm] for harm in ("cancel", "hang_up", "slow")) > 3
    assert case["requests"] == sum(count for name, count in case.items() if name.startswith("answers "))
    assert "8 of 8 conversations" in capsys.readouterr().err
