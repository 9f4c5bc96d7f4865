"""The report's pictures: round ticks, honest scales, lines that do not lag."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from turnwise.runs import axes, charts, curves
from turnwise.runs.charts import Series


def circles(svg: str) -> list[tuple[str | None, str | None]]:
    return [(c.get("data-step"), c.get("data-say")) for c in ElementTree.fromstring(svg).iter("circle")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (0.125, "0.125"),
        (-2.0, "-2"),
        (1234.0, "1,234"),
        (31500.0, "31.5k"),
        (2.5e6, "2.5M"),
        (4e-6, "4e-6"),
        (123456, "123k"),
    ],
)
def test_numbers_are_short(value, said):
    assert axes.short(value) == said


def test_ticks_are_round_and_inside_the_scale():
    assert axes.ticks(axes.Scale(0.0, 0.7, 0, 100)) == [0.0, 0.2, 0.4, 0.6]
    assert axes.ticks(axes.Scale(-0.06, 0.05, 0, 100)) == [-0.05, 0.0, 0.05]
    assert axes.ticks(axes.Scale(1e-7, 1e-3, 0, 100, log=True)) == pytest.approx([1e-7, 1e-6, 1e-5, 1e-4, 1e-3])


def test_step_ticks_are_whole_steps():
    assert axes.steps(axes.Scale(1.0, 3.0, 0, 100)) == [1.0, 2.0, 3.0]


def test_a_scale_ends_at_its_bounds_and_leaves_air_elsewhere():
    assert axes.linear([2.0, 10.0], 0, 100, bounds=(0.0,)) == axes.Scale(0.0, 10.6, 0, 100)
    assert axes.linear([0.3], 0, 100, bounds=(0.0, 1.0)) == axes.Scale(0.0, 1.0, 0, 100)
    assert axes.linear([0.0], 0, 100, bounds=(0.0,)) == axes.Scale(-1.0, 1.0, 0, 100)


def test_a_log_scale_puts_equal_ratios_at_equal_distances():
    scale = axes.logarithmic([2e-6, 5e-4], 0, 90)
    assert [scale(v) for v in (1e-6, 1e-5, 1e-4, 1e-3)] == pytest.approx([0, 30, 60, 90])


def test_smoothing_keeps_a_constant_and_does_not_lean_to_one_side():
    assert charts.smooth([2.0] * 5, 3) == pytest.approx([2.0] * 5)
    assert charts.smooth([0.0, 0.0, 1.0], 3) == pytest.approx([1 / 14, 1 / 6, 11 / 14])
    rise = [0.0, 1.0, 2.0, 3.0]
    assert charts.smooth(rise, 3) == pytest.approx([3.0 - v for v in charts.smooth(rise, 3)[::-1]])


def test_every_point_of_a_line_can_be_read_out():
    svg = charts.lines("Reward", [Series("mean", [(1, 0.25), (2, 0.5)])])
    assert circles(svg) == [("1", "mean 0.25"), ("2", "mean 0.5")]
    assert 'aria-label="Reward: mean from 0.25 to 0.5"' in svg


def test_a_long_run_stays_a_small_picture_that_ends_at_its_last_step():
    svg = charts.lines("Reward", [Series("mean", [(step, step % 7) for step in range(1, 5001)])])
    assert len(circles(svg)) <= charts.MOST_POINTS + 1
    assert circles(svg)[-1][0] == "5000"


def test_areas_are_stacked_on_each_other():
    stages = [Series("rollout", [(1, 2.0), (2, 2.0)]), Series("train", [(1, 1.0), (2, 3.0)])]
    svg = charts.areas("Seconds", stages)
    assert circles(svg) == [("1", "rollout 2"), ("2", "rollout 2"), ("1", "train 1"), ("2", "train 3")]
    heights = [float(c.get("cy", "")) for c in ElementTree.fromstring(svg).iter("circle")]
    floor = charts.HEIGHT - charts.BOTTOM
    assert [round((floor - h) / (floor - heights[0]), 2) for h in heights] == [1.0, 1.0, 1.5, 2.5]


def test_a_log_curve_says_how_many_zeros_it_cannot_show():
    page = curves.figures([{"step": 1, "mismatch/max": 0.0}, {"step": 2, "mismatch/max": 1e-6}])
    assert "(1 at zero, not shown)" in page
    assert "nothing above zero" in curves.figures([{"step": 1, "mismatch/max": 0.0}])


def test_what_a_step_took_beyond_its_stages_is_other():
    page = curves.figures([{"step": 1, "time/rollout_s": 2.0, "time/train_s": 1.0, "time/step_s": 3.5}])
    assert re.findall('data-say="([^"]+)"', page) == ["rollout 2", "train 1", "other 0.5"]


def test_rare_stop_reasons_are_shown_together():
    line = {"step": 1, **{f"stop/reason_{k}": float(9 - k) for k in range(8)}}
    said = re.findall('data-say="([^"]+)"', curves.figures([line]))
    assert said == [*(f"reason {k} {9 - k}" for k in range(5)), "others 9"]


def test_a_run_that_compacts_shows_its_caches_and_its_gap_before_and_after():
    line = {"step": 1, "mismatch/max": 2e-5, "mismatch/max_before": 1e-5, "mismatch/max_after": 2e-5}
    cache = {"cache/peak_mean": 120.0, "cache/peak_max": 150.0, "compaction/events": 1.5}
    said = re.findall('data-say="([^"]+)"', curves.figures([line | cache]))
    assert said == ["before an event 1e-5", "after 2e-5", "largest 150", "mean 120"]
    assert re.findall('data-say="([^"]+)"', curves.figures([line | cache | {"compaction/events": 0.0}])) == said[:2]
