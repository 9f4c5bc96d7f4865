"""One optimizer step on a small real model: layout does not matter, and going on from a saved state is exact."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from played import played, tight, turn
from turnwise.config.loss import CispoConfig, DppoConfig, GrpoConfig, GspoConfig, OpdConfig, SftConfig
from turnwise.config.run import TrainConfig
from turnwise.errors import RunError
from turnwise.losses import Tokens, choose
from turnwise.model import Policy
from turnwise.rows import Row
from turnwise.testing import tiny_model
from turnwise.train import Tally, Trainer, batch
from turnwise.train.step import learning_rate, score_row
from turnwise.types import Trajectory, Turn

Grads = dict[str, Tensor]


def says(rng: np.random.Generator, prompt: Sequence[int], n: int, heat: float) -> Turn:
    """A turn of n random tokens; of every other token a support was recorded."""
    said = rng.integers(3, 259, n).tolist()
    allowed = [sorted({t, *rng.integers(3, 259, 4).tolist()}) if k % 2 else [] for k, t in enumerate(said)]
    logprobs, versions = rng.uniform(-6.0, -4.0, n).tolist(), rng.integers(0, 2, n)
    return turn(prompt, said, logprobs, versions=versions, support=tight(*allowed), temperature=heat)


def episodes(seed: int = 0) -> list[Trajectory]:
    """2 groups of 3 siblings over one prompt each; second turns read the first, the last one's with another ending."""
    rng, found = np.random.default_rng(seed), []
    for n in range(6):
        group, sibling = divmod(n, 3)
        prompt = [1, 60 + group, *range(100, 118)]
        first = says(rng, prompt, 3 + sibling, 0.7)
        read = [*prompt, *first.completion_ids.tolist()]
        read = [*read[:-1], 33, 34] if sibling == 2 else [*read, 9, 9]
        found.append(played(first, says(rng, read, 2, 1.0), group=group, sibling=sibling))
    return found


ADVANTAGE = np.array([0.5, -1.5, 1.0, 2.0, -1.0, -1.0], np.float32)
LOSSES = [
    DppoConfig(kl_tau=0.1),
    GrpoConfig(),
    GspoConfig(low=0.5, high=0.9),
    CispoConfig(),
    OpdConfig(teacher="half a nat above the sampler"),
    SftConfig(),
]


def rows_of(config: TrainConfig, order: Iterable[int] = range(6)) -> list[Row]:
    rows, counts = batch(episodes(), ADVANTAGE, list(order), config)
    assert counts["dropped/over_budget/right"] == 0
    taught = [replace(r.entries, teacher_logp=r.entries.sampler_logp + np.float32(0.5)) for r in rows]
    return [replace(row, entries=entries) for row, entries in zip(rows, taught, strict=True)]


def gradients(policy: Policy, work: Callable[[], Any]) -> Grads:
    """What `work` has accumulated in each weight's gradient after its last backward."""
    found: Grads = {}

    def note(name: str) -> Callable[[Tensor], None]:
        return lambda weight: found.update({name: weight.grad.clone()})  # type: ignore[union-attr]

    hooks = [w.register_post_accumulate_grad_hook(note(name)) for name, w in policy.model.named_parameters()]
    work()
    for hook in hooks:
        hook.remove()
    return found


def stepped(loss: Any, config: TrainConfig, order: Iterable[int] = range(6)) -> Grads:
    trainer = Trainer(tiny_model(), config, choose(loss))
    return gradients(trainer.policy, lambda: trainer.update(rows_of(config, order), 0, Tally()))


def plain(policy: Policy, t: Turn) -> Tensor:
    """Log-probabilities of one turn's tokens, read alone by the unpacked model."""
    ids, start = torch.from_numpy(np.concatenate([t.prompt_ids, t.completion_ids])).long(), len(t.prompt_ids)
    logits = policy.model(ids[None]).logits[0, start - 1 : -1] / t.temperature
    assert t.support is not None
    found = []
    for n, token in enumerate(t.completion_ids):
        allowed = t.support.of(n).tolist() or list(range(policy.vocab))
        found.append(logits[n, allowed].log_softmax(0)[allowed.index(token)])
    return torch.stack(found)


def turn_by_turn(loss: Any) -> Grads:
    """The same update without trees or rows: every turn is a sample of its own."""
    policy, found = tiny_model(), episodes()

    def work() -> None:
        logp = torch.cat([plain(policy, t) for e in found for t in e.turns])
        advantage = np.repeat(ADVANTAGE, [e.sampled_tokens for e in found])
        old = torch.from_numpy(np.concatenate([t.logprobs for e in found for t in e.turns]))
        replies = np.repeat(np.arange(12), [len(t.completion_ids) for e in found for t in e.turns])
        tokens = Tokens(torch.from_numpy(advantage), old, torch.ones(len(old)), torch.from_numpy(replies), old + 0.5)
        (choose(loss)(logp, tokens).loss / len(old)).backward()

    return gradients(policy, work)


def assert_equal(a: Grads, b: Grads) -> None:
    """To 1e-5 of the longest gradient, in the worst weight."""
    assert a.keys() == b.keys()
    length = max(float(x.norm()) for x in a.values())
    assert length > 1e-3
    worst = max(float((a[name] - b[name]).norm()) for name in a)
    assert worst < 1e-5 * length


@pytest.mark.parametrize("loss", LOSSES, ids=lambda c: c.type)
@pytest.mark.parametrize("share", ["trajectory", "group"])
@pytest.mark.parametrize("row_tokens", [32, 64, 256, 4096])
def test_packed_trees_give_the_gradient_of_every_turn_read_alone(loss: Any, share: Any, row_tokens: int) -> None:
    config = TrainConfig(row_tokens=row_tokens, share=share, max_grad_norm=1e9)
    assert_equal(stepped(loss, config), turn_by_turn(loss))


def test_the_layouts_compared_do_differ() -> None:
    layouts = [(t, s) for t in (64, 256) for s in ("trajectory", "group")]
    rows = [rows_of(TrainConfig(row_tokens=t, share=s)) for t, s in layouts]
    assert [(len(r), sum(map(len, r))) for r in rows] == [(3, 168), (2, 88), (1, 168), (1, 88)]


def test_the_order_of_trajectories_does_not_matter() -> None:
    config = TrainConfig(row_tokens=64, max_grad_norm=1e9)
    assert_equal(stepped(DppoConfig(), config), stepped(DppoConfig(), config, [4, 1, 0, 5, 3, 2]))


def test_a_row_s_log_probabilities_are_those_of_its_turns() -> None:
    policy, found = tiny_model(), episodes()
    (row,) = rows_of(TrainConfig())
    e = row.entries
    with torch.no_grad():
        logp = score_row(policy, row).logp_E
        expected = {(i, n): plain(policy, t) for i, p in enumerate(found) for n, t in enumerate(p.turns)}
    for key, alone in expected.items():
        mine = (e.trajectory == key[0]) & (e.turn == key[1])
        torch.testing.assert_close(logp[torch.from_numpy(mine)].sort()[0], alone.sort()[0], atol=1e-5, rtol=1e-5)


def test_the_learning_rate_warms_up_holds_or_falls_to_zero() -> None:
    def rates(**config: int) -> list[float]:
        return [learning_rate(TrainConfig(lr=0.5, **config), step) for step in range(8)]

    assert rates() == [0.5] * 8
    assert rates(warmup=4) == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert rates(decay=4) == [0.5, 0.375, 0.25, 0.125, 0.0, 0.0, 0.0, 0.0]
    assert rates(warmup=2, decay=6) == [0.25, 0.5, 0.5, 0.375, 0.25, 0.125, 0.0, 0.0]


def test_each_update_sets_its_step_s_learning_rate_and_counts_a_version() -> None:
    trainer, tally = Trainer(tiny_model(), TrainConfig(lr=0.5, warmup=4), choose(SftConfig())), Tally()
    trainer.update(rows_of(TrainConfig()), 1, tally)
    assert (trainer.version, tally.metrics()["optim/lr"]) == (1, 0.25)
    assert [g["lr"] for g in trainer.optimizer.param_groups] == [0.25]


def test_metrics_are_means_over_entries_however_they_lie_in_rows() -> None:
    def metrics(**layout: Any) -> dict[str, float]:
        config, tally = TrainConfig(**layout), Tally()
        Trainer(tiny_model(), config, choose(DppoConfig())).update(rows_of(config), 0, tally)
        return tally.metrics()

    assert metrics(row_tokens=64, share="trajectory") == pytest.approx(metrics(), rel=1e-4)


def test_a_mismatch_is_looked_for_only_where_sampler_and_trainer_had_the_same_weights() -> None:
    (row,), tally = rows_of(TrainConfig()), Tally()
    trainer = Trainer(tiny_model(), TrainConfig(), choose(DppoConfig()))
    with torch.no_grad():
        shift = (score_row(trainer.policy, row).logp_E - torch.from_numpy(row.entries.sampler_logp)).double()
    same = shift[torch.from_numpy(row.entries.version == 0)]
    trainer.update([row], 0, tally)
    found = tally.metrics()
    assert 0 < len(same) < len(shift)
    assert found["mismatch/max"] == pytest.approx(float(same.abs().max()), rel=1e-5)
    assert found["mismatch/kl"] == pytest.approx(float((same.exp() - same - 1).mean()), rel=1e-4)
    assert found["policy/approx_kl"] == pytest.approx(float((shift.exp() - shift - 1).mean()), rel=1e-4)


def weights(policy: Policy) -> dict[str, Tensor]:
    return {name: w.detach().clone() for name, w in policy.model.named_parameters()}


def saved(thing: Any) -> Any:
    """Through a file and back, as a checkpoint does it."""
    file = io.BytesIO()
    torch.save(thing, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def test_two_steps_equal_one_a_save_a_restore_and_another_bit_for_bit() -> None:
    config = TrainConfig(lr=1e-2, weight_decay=0.1)
    rows = rows_of(config)
    whole = Trainer(tiny_model(), config, choose(DppoConfig()))
    whole.update(rows, 0, Tally())
    middle, state = saved(weights(whole.policy)), saved(whole.state())
    whole.update(rows, 1, Tally())
    resumed = Trainer(tiny_model(seed=9), config, choose(DppoConfig()))
    resumed.policy.model.load_state_dict(middle)
    resumed.restore(state)
    resumed.update(rows, 1, Tally())
    before, after = weights(whole.policy), weights(resumed.policy)
    assert resumed.version == whole.version == 2
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert any(not torch.equal(before[name], middle[name]) for name in before)


def test_a_gradient_that_is_no_number_stops_the_run_before_it_touches_the_weights() -> None:
    policy = tiny_model()
    before = [p.detach().clone() for p in policy.model.parameters()]
    rows, _ = batch([played(turn([1, 2], [3, 4]), reward=1.0)], np.array([np.inf], np.float32), [0], TrainConfig())
    with pytest.raises(RunError, match="expected a finite one; the weights are as before"):
        Trainer(policy, TrainConfig(), choose(GrpoConfig())).update(rows, 3, Tally())
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
