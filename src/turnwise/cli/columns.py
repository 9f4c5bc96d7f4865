"""A step's metrics in, the words of one line out: the same columns for the live table and for plain lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column after the step's number."""

    title: str
    metric: str
    width: int
    show: Callable[[float], str]


def _number(form: str) -> Callable[[float], str]:
    return lambda value: format(value, form)


COLUMNS = (
    Column("reward", "reward/mean", 7, _number(".3f")),
    Column("success", "success/mean", 7, _number(".2f")),
    Column("turns", "episode/turns", 6, _number(".1f")),
    Column("loss", "loss/total", 9, _number(".4f")),
    Column("mismatch", "mismatch/max", 8, _number(".1e")),
    Column("tok/s", "perf/tokens_per_s", 8, _number(",.0f")),
    Column("rollout s", "time/rollout_s", 9, _number(".2f")),
    Column("train s", "time/train_s", 7, _number(".2f")),
)
"""Of a run that plays."""
LEARNT = (
    Column("loss", "loss/total", 9, _number(".4f")),
    Column("entropy", "policy/entropy", 8, _number(".3f")),
    Column("grad", "optim/grad_norm", 8, _number(".2f")),
    Column("trained", "samples/tokens_trained", 8, _number(",.0f")),
    Column("tok/s", "perf/tokens_per_s", 8, _number(",.0f")),
    Column("step s", "time/step_s", 7, _number(".2f")),
)
"""Of a run that only reads."""
STEP_WIDTH = 9


def cells(step: int, total: int, metrics: Mapping[str, float], columns: Sequence[Column] = COLUMNS) -> list[str]:
    """One word a column; a metric that was not measured is a dash."""
    return [f"{step}/{total}", *(c.show(metrics[c.metric]) if c.metric in metrics else "-" for c in columns)]


def trained(metrics: Mapping[str, float], columns: Sequence[Column] = COLUMNS) -> bool:
    """Whether there is anything to put in a row: before the first step there is only an evaluation."""
    return any(c.metric in metrics for c in columns)


def held_out(step: int, metrics: Mapping[str, float]) -> str | None:
    """The evaluation in words, with its interval; None on the steps without one."""
    if "eval/loss" in metrics:
        return f"step {step}: held-out loss {metrics['eval/loss']:.4f}, {metrics['eval/n']:.0f} conversations"
    if "eval/success" not in metrics:
        return None
    low, high, n = (metrics[f"eval/{k}"] for k in ("low", "high", "n"))
    said = f"step {step}: held-out success {metrics['eval/success']:.2f} ({low:.2f} to {high:.2f}), n {n:.0f}"
    whole = metrics.get("eval/whole/success")
    return said if whole is None else f"{said}; with the whole cache {whole:.2f}"


def aligned(words: list[str], columns: Sequence[Column] = COLUMNS) -> str:
    """One plain line: every word at the right end of its column."""
    widths = [STEP_WIDTH, *(c.width for c in columns)]
    return "  ".join(w.rjust(n) for w, n in zip(words, widths, strict=True))


def heading(columns: Sequence[Column] = COLUMNS) -> str:
    """The plain line above the first."""
    return aligned(["step", *(c.title for c in columns)], columns)
