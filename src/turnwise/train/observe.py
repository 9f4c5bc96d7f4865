"""What an update saw, in sums over entries: the policy, how far it is from the sampler, and how old the samples are."""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.losses import Result
from turnwise.model import Scores
from turnwise.rows import Row
from turnwise.train.tally import Tally
from turnwise.types import Floats


@torch.no_grad()
def observe(row: Row, scores: Scores, loss: Tensor, result: Result, version: int, tally: Tally) -> None:
    """`policy/entropy` and `policy/confidence` are of the distribution at temperature 1; ratios are as sampled."""
    e, n = row.entries, len(row.entries)
    shift_E = scores.logp_E - torch.from_numpy(e.sampler_logp).to(scores.logp_E.device)
    kl_E = _k3(shift_E)
    sums = {name: marks.sum() for name, marks in result.marks.items()}
    tally.add(n, {"loss/rl": loss, **sums, "policy/entropy": scores.plain_entropy_E.sum()})
    tally.add(n, {"policy/approx_kl": kl_E.sum()})
    tally.add_logs(n, {"policy/confidence": scores.plain_logp_E.sum()})
    tally.high("policy/ratio_max", float(shift_E.max().exp()))
    _mismatch(row, torch.from_numpy(e.version == version).to(shift_E.device), shift_E, kl_E, tally)
    tally.add(n, {"staleness/mean": torch.tensor(float((version - e.version).sum()))})
    tally.high("staleness/max", float((version - e.version).max()))
    if e.ref_logp is not None:
        apart_E = torch.from_numpy(e.ref_logp).to(scores.logp_E.device) - scores.logp_E
        tally.add(n, {"policy/reference_kl": _k3(apart_E).sum()})
    if e.bonus is not None:
        tally.add(n, {"oracle/bonus": torch.tensor(float(e.bonus.sum()))})


def each(scores: Scores, result: Result) -> dict[str, Floats]:
    """What was found for every entry, as arrays [E]; a mark is called by the last part of its metric's name."""
    marks = {name.rpartition("/")[2]: marks for name, marks in result.marks.items()}
    found = {
        "trainer_logp": scores.logp_E,
        "entropy": scores.entropy_E,
        "plain_logp": scores.plain_logp_E,
        "plain_entropy": scores.plain_entropy_E,
    }
    return {name: values.detach().float().cpu().numpy() for name, values in (found | marks).items()}


def _mismatch(row: Row, same_E: Tensor, shift_E: Tensor, kl_E: Tensor, tally: Tally) -> None:
    """Only where sampler and trainer had the same weights, so that it should be 0; apart for tokens foretold before and
    after the first event, if there is one."""
    stretches = {"": same_E}
    if row.strikes:
        after_E = torch.from_numpy(row.struck[row.entries.source]).to(same_E.device)
        stretches |= {"_before": same_E & ~after_E, "_after": same_E & after_E}
    for name, own_E in stretches.items():
        if bool(own_E.any()):
            tally.add(int(own_E.sum()), {f"mismatch/kl{name}": kl_E[own_E].sum()})
            tally.high(f"mismatch/max{name}", float(shift_E[own_E].abs().max()))


def _k3(shift_E: Tensor) -> Tensor:
    """exp(d) - d - 1: an estimate of a divergence that is never below 0."""
    return shift_E.exp() - shift_E - 1.0
