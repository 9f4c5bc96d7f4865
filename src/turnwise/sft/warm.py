"""A supervised run: conversations, trees, rows, an optimizer step; and round again, in a run folder as in training."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from turnwise import runs
from turnwise.config import dump
from turnwise.config.sft import SftRunConfig
from turnwise.model import parameters
from turnwise.reporter import Reporter, Silent
from turnwise.rows import Seen
from turnwise.sft.parts import Parts, assemble
from turnwise.train import batch, learn
from turnwise.train.step import score_row
from turnwise.types import Task, Trajectory

KEPT = ("loss/", "optim/", "policy/entropy", "policy/confidence", "samples/")
"""Numbers that mean something where nobody sampled."""


def warm(
    config: SftRunConfig, reporter: Reporter | None = None, *, resume: bool = False, stop: threading.Event | None = None
) -> dict[str, float]:
    """Run a config to its end, or to the end of the step in which `stop` is set; returns the run's summary."""
    began = time.perf_counter()
    path = Path(config.out) / config.name
    parts, folder, done, spent = runs.begin(
        path, dump(config), lambda place: assemble(config, place), "sft", resume=resume
    )
    course = Course(parts, folder, reporter or Silent(), stop or threading.Event(), began - spent)
    return asyncio.run(course.run(done))


class Course:
    """One supervised run under way."""

    def __init__(
        self, parts: Parts, folder: runs.RunFolder, reporter: Reporter, stop: threading.Event, began: float
    ) -> None:
        self.parts = parts
        self.config = parts.config
        self.folder = folder
        self.reporter = reporter
        self.stop = stop
        self.began = began
        self.tasks: Iterator[Task] = iter(())
        self.warned = {event["prefix"] for event in folder.events() if "prefix" in event}

    async def run(self, done: int) -> dict[str, float]:
        """Steps `done` + 1 to the last."""
        self.reporter.start(self.config.name, self._about(done))
        steps, every = self.config.train.steps, self.config.checkpoint
        self.tasks = self.parts.tasks.train(done * self.config.train.tasks, self.config.seed)
        done = await runs.drive(self, self.parts, self.folder, self.reporter, self.stop, every, self.began, done, steps)
        return self._finish(done)

    async def step(self, number: int) -> dict[str, float]:
        """Read, learn; returns the step's numbers."""
        train, began = self.config.train, time.perf_counter()
        read = self._read(list(islice(self.tasks, train.tasks)))
        exports = bool(train.export_tokens) and (number + 1) % train.export_tokens == 0
        seen: list[Seen] | None = [] if exports else None
        metrics = learn(
            self.parts.trainer,
            read,
            np.ones(len(read), np.float32),
            train,
            self.config.reduction,
            number,
            lambda done, total: self.reporter.progress("training", done, total),
            seen=seen,
        )
        if seen is not None:
            runs.tokens.save(self.folder.tokens(number + 1), number + 1, read, seen, self._text)
        spent = time.perf_counter() - began
        found = {name: value for name, value in metrics.items() if name.startswith(KEPT)}
        self._heed(found)
        found |= {"samples/dropped/over_context": sum(t.metrics["over_context"] for t in read)}
        found |= {"perf/tokens_per_s": train.passes * metrics["samples/tokens_forwarded"] / spent, "time/step_s": spent}
        if number + 1 == train.steps or (self.config.eval.every and (number + 1) % self.config.eval.every == 0):
            found |= await self.evaluate()
        return found

    def _heed(self, metrics: dict[str, float]) -> None:
        """Say so when a template rewrites what conversations hold."""
        for kind, text in runs.breaks.warnings(metrics, self.config.train.warn_breaks).items():
            if kind not in self.warned:
                self.warned.add(kind)
                self.reporter.note(text)
                self.folder.event("warning", text=text, prefix=kind.value)

    def _read(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """The conversations of a step; those of one task are a group."""
        groups = {name: n for n, name in enumerate(dict.fromkeys(t.split or t.key for t in tasks))}
        return [
            replace(self.parts.conversation(t), group=groups[t.split or t.key], sibling=n) for n, t in enumerate(tasks)
        ]

    async def evaluate(self) -> dict[str, float]:
        """The loss on held-out conversations, always the same ones."""
        wanted = self.config.eval.conversations
        if not wanted:
            return {}
        read = self._read(self.parts.tasks.holdout(wanted))
        total, tokens = self._loss(read)
        return {"eval/loss": total / max(tokens, 1), "eval/tokens": float(tokens), "eval/n": float(len(read))}

    @torch.no_grad()
    def _loss(self, read: Sequence[Trajectory]) -> tuple[float, int]:
        """The sum of -log-probability of every token of the assistant's, and how many there are."""
        rows, _ = batch(read, np.ones(len(read), np.float32), range(len(read)), self.config.train)
        total, tokens = 0.0, 0
        for done, row in enumerate(rows, 1):
            if len(row.entries):
                total -= float(score_row(self.parts.policy, row).logp_E.double().sum())
                tokens += len(row.entries)
            self.reporter.progress("held-out", done, len(rows))
        return total, tokens

    def _text(self, token: int) -> str:
        return str(self.parts.policy.tokenizer.decode([token], skip_special_tokens=False))

    def _about(self, done: int) -> list[str]:
        c, policy = self.config, self.parts.policy
        return [
            f"model {c.model}: {parameters(policy.model) / 1e6:.2f} M parameters, vocabulary {policy.vocab}",
            f"data {', '.join(c.data)}: {c.train.tasks} conversations a step",
            f"{c.train.steps} steps, {f'resuming after step {done}' if done else 'from the start'}; "
            f"run folder {self.folder.path}",
        ]

    def _finish(self, done: int) -> dict[str, float]:
        """Write summary and report; the last line says what was learnt, or how to go on."""
        losses = [line["eval/loss"] for line in self.folder.metrics() if line.get("eval/loss") is not None]
        seconds, steps = round(time.perf_counter() - self.began, 1), self.config.train.steps
        summary: dict[str, float] = {"seed": self.config.seed, "steps": done, "seconds": seconds}
        if losses:
            summary |= {"before": losses[0], "after": losses[-1]}
        self.folder.write_json("summary.json", summary)
        report = runs.report.write(self.folder)
        self.folder.event("finish" if done == steps else "stop", **summary)
        self.reporter.finish([f"report {report}", *self._closing(done, summary)])
        return summary

    def _closing(self, done: int, summary: dict[str, float]) -> list[str]:
        if done < self.config.train.steps:
            go_on = f"turnwise sft @ {self.folder.config} --resume"
            return [f"stopped after step {done} of {self.config.train.steps}; go on with: {go_on}"]
        newest = runs.checkpoint.newest(self.folder)
        start = [f"train from it: turnwise train @ run.toml --model {newest[1]}"] if newest else []
        if "before" in summary:
            told = "held-out loss {before:.3f} -> {after:.3f} (seed {seed}, {seconds} s)".format(**summary)
            return [*start, told]
        return [*start, f"{done} steps in {summary['seconds']} s"]
