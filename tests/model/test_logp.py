"""Scores equal log-softmax at the asked positions, whatever the chunks, supports and temperatures."""

from __future__ import annotations

import pytest
import torch

from turnwise.model import logp as module
from turnwise.model.logp import Support, score

V, W = 11, 5
HEAD = torch.randn(V, W, generator=torch.Generator().manual_seed(0))
HIDDEN = torch.randn(6, W, generator=torch.Generator().manual_seed(1))
SOURCE = torch.tensor([0, 1, 1, 3, 5])
TARGET = torch.tensor([4, 2, 9, 0, 10])
HEAT = torch.tensor([1.0, 0.5, 0.5, 2.0, 1.0])


def head(hidden: torch.Tensor) -> torch.Tensor:
    return hidden @ HEAD.T


def plain() -> torch.Tensor:
    return (head(HIDDEN)[SOURCE] / HEAT[:, None]).log_softmax(1)


def test_scores_are_log_softmax_at_temperature_and_exact_entropy() -> None:
    got = score(HIDDEN, head, SOURCE, TARGET, HEAT)
    torch.testing.assert_close(got.logp_E, plain()[torch.arange(5), TARGET])
    torch.testing.assert_close(got.entropy_E, -(plain().exp() * plain()).sum(1))


def test_a_support_normalises_over_its_tokens_only_and_an_empty_one_over_all() -> None:
    ids = torch.tensor([[4, 7], [2, 3], [0, 0], [0, 0], [10, 0]])
    held = torch.tensor([[True, True], [True, True], [False, False], [False, False], [True, False]])
    got = score(HIDDEN, head, SOURCE, TARGET, HEAT, Support(ids, held))
    logits = head(HIDDEN)[SOURCE] / HEAT[:, None]
    assert got.logp_E[0] == pytest.approx(float(logits[0, [4, 7]].log_softmax(0)[0]), abs=1e-6)
    assert got.logp_E[1] == pytest.approx(float(logits[1, [2, 3]].log_softmax(0)[0]), abs=1e-6)
    torch.testing.assert_close(got.logp_E[2:4], plain()[torch.arange(2, 4), TARGET[2:4]])
    assert got.logp_E[4] == got.entropy_E[4] == 0.0


def test_chunks_change_neither_values_nor_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for numbers in (2**25, 2 * V):
        monkeypatch.setattr(module, "CHUNK_NUMBERS", numbers)
        hidden = HIDDEN.clone().requires_grad_()
        got = score(hidden, head, SOURCE, TARGET, HEAT, vocab=V)
        (got.logp_E.sum() + got.entropy_E.sum()).backward()
        found.append((got.logp_E.detach(), hidden.grad))
    torch.testing.assert_close(found[0], found[1])


def test_gradients_flow_through_a_support_mixed_with_open_tokens() -> None:
    hidden = HIDDEN.clone().requires_grad_()
    support = Support(torch.tensor([[4, 7]] + [[0, 0]] * 4), torch.tensor([[True, True]] + [[False, False]] * 4))
    got = score(hidden, head, SOURCE, TARGET, HEAT, support)
    (got.logp_E.sum() + got.entropy_E.sum()).backward()
    assert hidden.grad is not None and bool(hidden.grad.isfinite().all())
    assert bool((hidden.grad[[0, 1, 3, 5]].abs().sum(1) > 0).all()) and not hidden.grad[[2, 4]].any()


def test_only_positions_someone_points_at_are_projected() -> None:
    seen: list[int] = []

    def counting(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(len(hidden))
        return head(hidden)

    score(HIDDEN, counting, SOURCE, TARGET, HEAT)
    assert seen == [4]
