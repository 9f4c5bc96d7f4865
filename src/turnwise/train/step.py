"""Rows in, one optimizer step out: L = sum over entries of the loss / entries of the whole update, and the same over
what echoes: sum of -weight x log-probability / echo tokens of the whole update.

Rows accumulate, so however trees are packed the gradient is that of one big batch. The trainer is blind to algorithms:
it reads entries. Shapes: N tokens of a row, E entries, S support.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from turnwise.config.loss import Options
from turnwise.config.run import TrainConfig
from turnwise.errors import RunError
from turnwise.losses import Loss
from turnwise.model import Policy, Scores, row_attention, score
from turnwise.model.logp import Read
from turnwise.model.logp import Support as TokenSupport
from turnwise.model.slots import Gradient, Slots, turns
from turnwise.rows import Row, Seen
from turnwise.train.echo import echo_loss
from turnwise.train.numbers import numbers
from turnwise.train.observe import each, observe
from turnwise.train.reference import reference_kl
from turnwise.train.tally import Tally
from turnwise.types import Echo, Ids, Support


class Trainer:
    """Owns the optimizer and counts its steps: `version` is the policy version that sampled tokens carry."""

    def __init__(
        self,
        policy: Policy,
        config: TrainConfig,
        loss: Loss,
        options: Options | None = None,
        gradient: Gradient = "map",
    ) -> None:
        self.policy = policy
        self.config = config
        self.loss = loss
        self.options = options or Options()
        self.gradient = gradient
        self.version = 0
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(),
            lr=config.lr,
            betas=(config.betas[0], config.betas[1]),
            weight_decay=config.weight_decay,
            fused=True,
        )

    def update(
        self,
        rows: Sequence[Row],
        step: int,
        tally: Tally,
        progress: Callable[[int, int], None] = lambda d, t: None,
        seen: list[Seen] | None = None,
    ) -> None:
        """One optimizer step over `rows`; `step` sets the learning rate; `tally` collects metrics, and `seen`, if
        given, what was found for every entry."""
        rate = learning_rate(self.config, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.accumulate(rows, tally, progress, seen)
        norm = torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), self.config.max_grad_norm)
        if not bool(norm.isfinite()):
            raise RunError(
                f"found a gradient of length {float(norm)} in step {step}, expected a finite one; the weights are as "
                "before this update, and --resume goes on from the last checkpoint. Look for rewards or "
                "log-probabilities in the step's rollouts that are not finite"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.version += 1
        tally.high("optim/grad_norm", float(norm))
        tally.high("optim/lr", rate)

    def accumulate(
        self,
        rows: Sequence[Row],
        tally: Tally,
        progress: Callable[[int, int], None] = lambda d, t: None,
        seen: list[Seen] | None = None,
    ) -> None:
        """Leave the gradient of all rows' loss in the weights' `grad`."""
        counts = Counts(max(1, sum(len(r.entries) for r in rows)), max(1, sum(len(r.echo) for r in rows)))
        self.optimizer.zero_grad(set_to_none=True)
        for done, row in enumerate(rows, 1):
            self._loss(row, counts, tally, seen).backward()
            progress(done, len(rows))

    def _loss(self, row: Row, counts: Counts, tally: Tally, seen: list[Seen] | None) -> Tensor:
        """The row's share of the update's loss; each of its two sums is divided by its own number of tokens."""
        scores = score_row(self.policy, row, row.echo, self.gradient)
        parts = []
        if len(row.entries):
            parts.append(self._rl(row, scores, tally, seen) / counts.entries)
        if len(row.echo):
            parts.append(echo_loss(row.echo, scores.echo_logp_M, tally) / counts.echo)
            if seen is not None:
                seen.append(Seen(row, {}, scores.echo_logp_M.detach().cpu().numpy()))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _rl(self, row: Row, scores: Scores, tally: Tally, seen: list[Seen] | None) -> Tensor:
        e, add = row.entries, self.options
        result = self.loss(scores.logp_E, numbers(e, add.tis_cap, self.policy.device))
        loss = result.loss - add.entropy * scores.entropy_E.sum() if add.entropy else result.loss
        if add.reference_kl:
            loss = loss + add.reference_kl * reference_kl(scores.logp_E, e)
        observe(row, scores, loss, result, self.version, tally)
        if seen is not None:
            seen.append(Seen(row, each(scores, result)))
        return loss

    def state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "version": self.version}

    def restore(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.version = state["version"]


class Counts(NamedTuple):
    """Tokens of a whole update, each at least 1."""

    entries: int
    echo: int


def score_row(policy: Policy, row: Row, echo: Echo | None = None, gradient: Gradient = "map") -> Scores:
    """Log-probability and entropy of every entry's token, in one forward pass over the row; of `echo` too if asked.

    Events are replayed; `gradient` says what flows through them.
    """
    device = policy.device
    ids_N, positions_N = (_long(x, device) for x in (row.ids, row.positions))
    attend = row_attention(row.visible_until, device, _slots(policy, row, gradient) if row.strikes else None)
    hidden_NW = policy.hidden(ids_N[None], positions_N[None], attend)[0]
    e = row.entries
    return score(
        hidden_NW,
        policy.head,
        _long(e.source, device),
        ids_N[_long(e.at, device)],
        torch.from_numpy(e.temperature).to(device),
        padded(e.support, device),
        policy.vocab,
        None if echo is None else Read(_long(echo.source, device), ids_N[_long(echo.at, device)]),
    )


def _slots(policy: Policy, row: Row, gradient: Gradient) -> Slots:
    inv_freq = policy.inv_freq if turns(row.strikes) else None
    return Slots(row.ends, row.strikes, row.positions, policy.device, inv_freq, gradient)


def _long(values: Ids, device: torch.device) -> Tensor:
    return torch.from_numpy(values).long().to(device)


def padded(support: Support, device: torch.device) -> TokenSupport | None:
    """Ragged supports as a rectangle and a mask: [[4, 7], [9]] gives ids [[4, 7], [9, 0]], held [[1, 1], [1, 0]]."""
    lengths = np.diff(support.offsets)
    if not lengths.any():
        return None
    held = np.arange(lengths.max())[None] < lengths[:, None]
    ids = np.zeros(held.shape, np.int64)
    ids[held] = support.ids
    return TokenSupport(torch.from_numpy(ids).to(device), torch.from_numpy(held).to(device))


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then constant or linear decay to 0 at `decay`. Steps count from 0."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.decay:
        return config.lr * max(0.0, (config.decay - step) / (config.decay - config.warmup))
    return config.lr
