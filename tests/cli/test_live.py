"""What a run looks like: a table in a terminal, lines in a pipe, one line when quiet."""

from __future__ import annotations

import io
import os
import signal

import pytest
from rich.console import Console

from turnwise.cli.columns import held_out
from turnwise.cli.interrupt import SOON, stoppable
from turnwise.cli.live import ROWS, Last, Lines, LiveTable, reporter

METRICS = {
    "reward/mean": 0.5,
    "success/mean": 0.75,
    "episode/turns": 7.25,
    "loss/total": -0.0123,
    "mismatch/max": 3.1e-6,
    "perf/tokens_per_s": 12345.6,
    "time/rollout_s": 1.234,
    "time/train_s": 0.8,
}
EVAL = {"eval/success": 0.94, "eval/n": 200.0, "eval/low": 0.9, "eval/high": 0.97}
HELD_OUT = "held-out success 0.94 (0.90 to 0.97), n 200"


def screen(play) -> str:
    """What stands on an 80-column terminal after `play` has used a LiveTable."""
    console = Console(file=io.StringIO(), width=80, height=40, force_terminal=True, color_system=None)
    table = LiveTable(console)
    play(table)
    table.close()
    return console.file.getvalue()


def test_lines_are_aligned_under_their_heading(capsys):
    lines = Lines()
    lines.step(1, 80, METRICS)
    lines.step(2, 80, {"reward/mean": 1.0})
    assert capsys.readouterr().out.splitlines() == [
        "     step   reward  success   turns       loss  mismatch     tok/s  rollout s  train s",
        "     1/80    0.500     0.75     7.2    -0.0123   3.1e-06    12,346       1.23     0.80",
        "     2/80    1.000        -       -          -         -         -          -        -",
    ]


def test_a_step_with_only_an_evaluation_prints_only_that(capsys):
    Lines().step(0, 80, EVAL)
    assert capsys.readouterr().out == f"step 0: {HELD_OUT}\n"


def test_quiet_prints_only_the_last_line(capsys):
    quiet = reporter(quiet=True, terminal=True)
    quiet.start("demo", ["a", "b"])
    quiet.progress("rollouts", 1, 2)
    quiet.step(1, 80, METRICS | EVAL)
    quiet.note("c")
    quiet.finish(["d", "e"])
    assert capsys.readouterr().out == "e\n"


@pytest.mark.parametrize(
    ("quiet", "terminal", "kind"), [(True, True, Last), (True, False, Last), (False, False, Lines)]
)
def test_the_reporter_fits_where_the_output_goes(quiet, terminal, kind):
    assert type(reporter(quiet=quiet, terminal=terminal)) is kind


def test_the_table_fits_80_columns_and_keeps_the_newest_steps():
    def play(table):
        table.start("demo [seed 1]", ["one line"])
        for step in range(1, ROWS + 6):
            table.step(step, 80, METRICS)

    last = screen(play).split("rollout s")[-1]
    rows = [line.split() for line in last.splitlines() if "/80" in line]
    expected = ["0.500", "0.75", "7.2", "-0.0123", "3.1e-06", "12,346", "1.23", "0.80"]
    assert rows == [[f"{step}/80", *expected] for step in range(6, ROWS + 6)]


def test_the_first_held_out_result_stays_in_sight():
    def play(table):
        table.start("demo", [])
        for step in range(9):
            table.step(step, 80, EVAL)

    shown = [line for line in screen(play).splitlines() if HELD_OUT in line][-4:]
    assert [line[line.index("step") :] for line in shown] == [f"step {s}: {HELD_OUT}" for s in (0, 6, 7, 8)]


def test_an_evaluation_with_and_without_compaction_says_both():
    assert held_out(0, EVAL | {"eval/whole/success": 0.5}) == f"step 0: {HELD_OUT}; with the whole cache 0.50"


def test_bars_start_again_with_the_next_step():
    console = Console(file=io.StringIO(), width=80)
    table = LiveTable(console)
    for done in (0, 4, 8, 0, 2):
        table.progress("rollouts", done, 8)
    table.progress("training", 1, 2)
    tasks = [(t.description, t.completed, t.total) for t in table.progress_bars.tasks]
    assert tasks == [("rollouts", 2, 8), ("training", 1, 2)]


def test_square_brackets_in_names_are_printed_as_they_are():
    assert "demo [bold]" in screen(lambda table: table.start("demo [bold]", []))


def test_the_first_ctrl_c_asks_and_the_second_stops():
    notes: list[str] = []
    with stoppable(notes.append) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.is_set(), notes) == (True, [SOON])
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_old_ctrl_c_comes_back_after_the_run():
    before = signal.getsignal(signal.SIGINT)
    with stoppable(print):
        pass
    assert signal.getsignal(signal.SIGINT) is before
