"""`turnwise bench compaction` on the tiny model, the cache it compacts, and its figures."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
import torch

from turnwise.bench import figures
from turnwise.bench.cached import Cache
from turnwise.bench.compacted import border, case
from turnwise.bench.compaction import Options, plans
from turnwise.bench.texts import texts
from turnwise.cli.main import main
from turnwise.errors import ConfigError
from turnwise.kv.queries import SOURCES
from turnwise.testing import tiny_model
from turnwise.types import Settings

SMALL = "--model tiny --texts 2 --prefix 8 --region 32 --suffix 8 --continuation 8 --ratios 0.5 0.25 --threads 1"
SMALL += " --sessions 3 --events 2"
SMALL += " --methods match match_3 evict newest delete match_bias --queries own suffix context repeat keys gaussian"
close = torch.testing.assert_close


def test_it_measures_every_case_and_its_figures_are_drawn(capsys, tmp_path):
    assert main(["bench", "compaction", *SMALL.split(), "--json", str(tmp_path / "c.json")]) == 0
    *found, decoded = json.loads((tmp_path / "c.json").read_text())["cases"]
    assert decoded["name"] == "decode/3" and decoded["whole_tok_s"] > 0 and decoded["compacted_tok_s"] > 0
    cases = {c["name"]: c for c in found}
    assert list(cases) == [plan.name for plan in plans(Options(methods=METHODS, ratios=[0.5, 0.25], events=[2]))]
    assert all(c["kl"] >= 0 and c["ms"] > 0 and c["event_vs_forward"] > 0 for c in cases.values())
    kept = ("match/own/0.25", "newest/-/0.5", "delete/-/0", "match_3/own/0.25/x2")
    assert [cases[name]["kept"] for name in kept] == [8, 16, 0, 5]
    assert "match/own/0.5" in capsys.readouterr().out
    figures.main(str(tmp_path / "c.json"), str(tmp_path))
    drawn = [ElementTree.parse(tmp_path / f"compaction-{name}.svg") for name in ("quality", "cache")]
    assert [len(d.findall(".//{http://www.w3.org/2000/svg}title")) for d in drawn] == [6, 3]


METHODS = ["match", "match_3", "evict", "newest", "delete", "match_bias"]


def test_repeated_events_strike_as_the_text_is_read():
    assert [border(2, event, Options()) for event in range(2)] == [896, 1408]


@pytest.mark.parametrize("method", ["match", "evict"])
def test_a_cache_that_keeps_all_goes_on_as_one_that_was_never_compacted(method):
    ids = list(range(3, 43))
    whole = Cache.empty(tiny_model())
    whole.read(ids[:30])
    same = whole.fork()
    same.compact((5, 20), SOURCES["own"], Settings(method, ratio=1.0))
    close(same.read(ids[30:]), whole.read(ids[30:]), atol=1e-5, rtol=1e-5)


def test_reading_in_parts_is_reading_at_once_and_a_fork_stays_as_it_was():
    ids = list(range(3, 43))
    once, parts = Cache.empty(tiny_model()), Cache.empty(tiny_model())
    whole = once.read(ids)
    first = parts.read(ids[:25])
    fork = parts.fork()
    fork.read(ids[:5])
    close(torch.cat([first, parts.read(ids[25:])]), whole, atol=1e-5, rtol=1e-5)


def test_figures_are_means_of_quality_and_medians_of_cost():
    one = {"kl": 0.1, "nll_increase": 0.0, "residual": 0.2, "ms": 10.0, "forward_ms": 20.0, "kept": 4.0}
    found = case("m", [one, {**one, "kl": 0.3, "ms": 30.0, "peak_mb": 7.0}])
    assert (found["kl"], found["kl_max"], found["ms"]) == (pytest.approx(0.2), 0.3, 20.0)
    assert (found["event_vs_forward"], found["peak_mb"]) == (1.0, 7.0)


def test_more_text_than_there_is_is_said():
    with pytest.raises(ConfigError, match="found too little text for 4 of 10000000 tokens; expected fewer"):
        texts(lambda text: {"input_ids": list(text[:100])}, 4, 10_000_000)
