"""The whole cycle: tasks, episodes, trees, rows, an optimizer step, weights back to the engine; and round again.

A step's tasks and draws depend only on the config's seed and the step's number, so a run that was killed and resumed
goes on with the numbers it would have had.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from turnwise import runs
from turnwise.agents import Batch, Plan, rollout
from turnwise.agents.columns import absent, columns
from turnwise.agents.figures import figures
from turnwise.config import RunConfig, dump
from turnwise.errors import RunError
from turnwise.evals import held_out
from turnwise.model import parameters
from turnwise.parts import Parts, assemble
from turnwise.reporter import Reporter, Silent
from turnwise.rows import Row, Seen
from turnwise.train import Silence, judge, learn
from turnwise.trees import advantages
from turnwise.types import Sampling, Task, Trajectory
from turnwise.weights import publish


def train(
    config: RunConfig, reporter: Reporter | None = None, *, resume: bool = False, stop: threading.Event | None = None
) -> dict[str, float]:
    """Run a config to its end, or to the end of the step in which `stop` is set; returns the run's summary."""
    began = time.perf_counter()
    reporter, stop = reporter or Silent(), stop or threading.Event()
    path = Path(config.out) / config.name
    parts, folder, done, spent = runs.begin(
        path, dump(config), lambda place: assemble(config, place), "train", resume=resume
    )
    return asyncio.run(Cycle(parts, folder, reporter, stop, began - spent).run(done))


IDLE_STEPS = 5
"""Steps without a gradient after which the run says so."""


class Cycle:
    """One run under way."""

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
        self.idle = 0
        self.silence = Silence(parts.echo) if parts.echo else None
        self.warned = {event[key] for event in folder.events() for key in ("prefix", "column") if key in event}

    async def run(self, done: int) -> dict[str, float]:
        """Steps `done` + 1 to the last; step 0 is the evaluation before training."""
        self.reporter.start(self.config.name, self._about(done))
        self.tasks = self.parts.tasks.train(done * self.config.train.tasks, self.config.seed)
        steps, saved = self.config.train.steps, self.config.checkpoint
        done = await runs.drive(self, self.parts, self.folder, self.reporter, self.stop, saved, self.began, done, steps)
        return self._finish(done)

    async def step(self, number: int) -> dict[str, float]:
        """Play, learn, publish; returns the step's numbers."""
        config, began = self.config, time.perf_counter()
        tasks = list(islice(self.tasks, config.train.tasks))
        play = Batch(tasks, config.env.group, config.seed, number, config.env.retries)
        before = self.parts.engine.counts.copy()
        trajectories = await self._play(play, "rollouts", self.parts.sampling, self.parts.compaction)
        engine = {f"engine/{name}": float(n - before[name]) for name, n in self.parts.engine.counts.items()}
        played = time.perf_counter()
        metrics = {**figures(trajectories), **engine, **self._learn(number, trajectories)}
        trained = time.perf_counter()
        computed = engine["engine/tokens_read"] + config.train.passes * metrics["samples/tokens_forwarded"]
        self._heed(metrics)
        runs.rollouts.save(self.folder.rollout(number + 1), number + 1, trajectories, self._columns(trajectories))
        if number + 1 == config.train.steps or (config.eval.every and (number + 1) % config.eval.every == 0):
            metrics |= await self.evaluate()
        return metrics | {
            "time/rollout_s": played - began,
            "time/train_s": trained - played,
            "time/step_s": time.perf_counter() - began,
            "perf/tokens_per_s": computed / (trained - began),
            "perf/cache_mb": self.parts.engine.cache_bytes / 2**20,
        }

    def _learn(self, number: int, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Update the weights, a share of the groups at a time, and hand them to the engine."""
        parts, config, told = self.parts, self.config, Counter[str]()
        every = config.train.export_tokens
        seen: list[Seen] | None = [] if every and (number + 1) % every == 0 else None
        metrics = learn(
            parts.trainer,
            trajectories,
            advantages(trajectories, config.advantage),
            config.train,
            config.loss.reduction,
            number,
            self._trained,
            parts.echo,
            lambda rows: self._judged(rows, trajectories, told),
            seen,
            parts.condense.masked if parts.condense else (),
        )
        if seen is not None:
            runs.tokens.save(self.folder.tokens(number + 1), number + 1, trajectories, seen, self._text)
        publish(parts.engine, parts.trainer.version)
        return {**metrics, **told}

    def _judged(self, rows: list[Row], trajectories: Sequence[Trajectory], told: Counter[str]) -> list[Row]:
        """What others say of the rows, the oracle among them, before the step's first update."""
        judged = judge(rows, self.parts.judges)
        if self.parts.oracle:
            judged, counts = self.parts.oracle.add(judged, trajectories)
            told.update(counts)
        return judged

    def _heed(self, metrics: Mapping[str, float]) -> None:
        """Say so when nothing was learnt for a while, or when prefixes break in a way that nobody meant; stop when
        nothing echoes that should."""
        echoes = self.silence.heed(metrics) if self.silence else False
        self.idle = 0 if echoes or metrics["samples/tokens_trained"] else self.idle + 1
        if self.idle == IDLE_STEPS:
            self._warn(f"{IDLE_STEPS} steps without a gradient: in no group did siblings' rewards differ")
        for kind, text in runs.breaks.warnings(metrics, self.config.train.warn_breaks).items():
            if kind not in self.warned:
                self.warned.add(kind)
                self._warn(text, prefix=kind.value)

    def _warn(self, text: str, **data: str) -> None:
        self.reporter.note(text)
        self.folder.event("warning", text=text, **data)

    def _columns(self, trajectories: Sequence[Trajectory]) -> dict[str, list[Any]]:
        """What the config wants saved beside the rest."""
        found = columns(trajectories, self.config.env.save_columns)
        for name in (name for name in absent(found) if name not in self.warned):
            self.warned.add(name)
            self._warn(
                f"env.save_columns: no episode of this step has {name!r} in its environment's extra, task or metrics",
                column=name,
            )
        return found

    def _text(self, token: int) -> str:
        return str(self.parts.policy.tokenizer.decode([token], skip_special_tokens=False))

    def _trained(self, done: int, total: int) -> None:
        self.reporter.progress("training", done, total)

    async def _play(self, play: Batch, stage: str, sampling: Sampling, compaction: Plan | None) -> list[Trajectory]:
        """Play a batch; failed episodes are events, and a batch of nothing else ends the run."""
        parts = self.parts

        def progress(done: int, total: int) -> None:
            self.reporter.progress(stage, done, total)

        def retried(failed: Trajectory) -> None:
            lost = failed.sampled_tokens
            self.folder.event("episode_retried", stage=stage, step=play.step, error=failed.error, tokens_lost=lost)

        trajectories = await rollout(
            play,
            parts.environment,
            parts.engine,
            parts.renderer,
            sampling,
            parts.limits,
            progress,
            retried,
            compaction,
            rules=parts.rules,
            condense=parts.condense,
        )
        errors = Counter(t.error for t in trajectories if t.error is not None)
        for error, times in errors.items():
            self.folder.event("episode_failed", stage=stage, step=play.step, error=error, times=times)
        if errors.total() == len(trajectories):
            raise RunError(f"all {len(trajectories)} episodes of a batch failed; most often: {errors.most_common(1)}")
        return trajectories

    async def evaluate(self) -> dict[str, float]:
        """Play the held-out tasks, always the same ones under the same seeds, with every cache that was asked for."""
        if not self.config.eval.tasks:
            return {}
        began, cache = time.perf_counter(), self.config.eval.cache
        found: dict[str, float] = {}
        if cache != "whole":
            found = await self._held_out("eval", self.parts.eval_compaction)
        if cache != "same":
            found |= await self._held_out("eval" if cache == "whole" else "eval/whole", None)
        return {**found, "time/eval_s": time.perf_counter() - began}

    async def _held_out(self, name: str, compaction: Plan | None) -> dict[str, float]:
        tasks = self.parts.tasks.holdout(self.config.eval.tasks)
        heat = replace(self.parts.sampling, temperature=self.config.eval.temperature)
        batch = Batch(tasks, 1, self.config.seed, -1, self.config.env.retries)
        return held_out(await self._play(batch, "held-out", heat, compaction), name)

    def _about(self, done: int) -> list[str]:
        c, policy = self.config, self.parts.policy
        start = f"resuming after step {done}" if done else "from the start"
        return [
            f"model {c.model}: {parameters(policy.model) / 1e6:.2f} M parameters, vocabulary {policy.vocab}",
            f"env {c.env.id}: {c.train.tasks} tasks x {c.env.group} siblings a step, loss {c.loss.type}",
            f"{c.train.steps} steps, {start}; run folder {self.folder.path}",
        ]

    def _finish(self, done: int) -> dict[str, float]:
        """Write summary and report; the last line says what was learnt, or how to go on."""
        results = [line for line in self.folder.metrics() if "eval/success" in line]
        seconds = round(time.perf_counter() - self.began, 1)
        summary: dict[str, float] = {"seed": self.config.seed, "steps": done, "seconds": seconds}
        if results:
            first, last = results[0], results[-1]
            summary |= {"before": first["eval/success"], "after": last["eval/success"], "n": int(last["eval/n"])}
        self.folder.write_json("summary.json", summary)
        report = runs.report.write(self.folder)
        if done < self.config.train.steps:
            go_on = f"turnwise train @ {self.folder.config} --resume"
            closing = f"stopped after step {done} of {self.config.train.steps}; go on with: {go_on}"
        elif results:
            closing = "held-out success {before:.3f} -> {after:.3f} (n {n}, seed {seed}, {seconds} s)".format(**summary)
        else:
            closing = f"{done} steps in {seconds} s"
        self.folder.event("finish" if done == self.config.train.steps else "stop", **summary)
        self.reporter.finish([f"report {report}", closing])
        return summary
