"""What flows backwards through an event: against finite differences, against autograd of plain loops, and how the three
ways of computing it compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from compacted import Talk, reply
from played import played
from turnwise.config.loss import SftConfig
from turnwise.config.run import TrainConfig
from turnwise.losses import choose
from turnwise.model import Policy, row_attention, slots
from turnwise.model.again import compute_again
from turnwise.model.slots import Slots
from turnwise.rows import Row, pack
from turnwise.testing import tiny_model
from turnwise.train import Tally, Trainer
from turnwise.trees import merge
from turnwise.types import Event, Strike

CPU = torch.device("cpu")
TOKENS, LAYERS, HEADS, GROUP, WIDTH = 14, 1, 2, 2, 4
INV_FREQ = torch.tensor([1.0, 0.1], dtype=torch.float64)
ENDS = np.full(TOKENS, TOKENS, np.int32)


def event(at: int, start: int, end: int, kept: list[list[int]], queries: list[int]) -> Event:
    return Event(at, start, end, "match", np.array([kept], np.int16), np.array(queries, np.int32), span=3)


EVENTS = (event(7, 1, 6, [[0, 3], [1, 4]], [1, 2, 3, 4, 5]), event(11, 1, 6, [[0, 2, 4], [1, 2, 3]], [6, 7]))
"""The second one's region holds the slots of the first."""
STRIKES = tuple(Strike(e.at, TOKENS, e) for e in EVENTS)


def inputs() -> list[Tensor]:
    draws = torch.Generator().manual_seed(0)
    shapes = [(1, HEADS * GROUP, TOKENS, WIDTH), *[(1, HEADS, TOKENS, WIDTH)] * 2]
    return [torch.randn(s, generator=draws, dtype=torch.float64, requires_grad=True) for s in shapes]


def attended(made: Slots, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    deaths = made.columns.death[:TOKENS]
    return row_attention(deaths, CPU, made)(0, q, k, v, 0.5)


def replay(gradient: Any) -> Slots:
    return Slots(ENDS, STRIKES, np.arange(TOKENS, dtype=np.int32), CPU, INV_FREQ, gradient)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Token by token, head by head: what each sees is a list of keys and values, which events shorten."""
    out = torch.zeros_like(q)
    for head in range(HEADS):
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for token in range(TOKENS):
            for e in [e for e in EVENTS if e.at == token]:
                struck(e, head, q, keys, values)
            keys.append(k[0, head, token])
            values.append(v[0, head, token])
            for g in range(GROUP):
                p = (0.5 * torch.stack(keys) @ q[0, GROUP * head + g, token]).softmax(0)
                out[0, GROUP * head + g, token] = p @ torch.stack(values)
    return out


def struck(e: Event, head: int, q: Tensor, keys: list[Tensor], values: list[Tensor]) -> None:
    """The definition: C2 = V + (X'X + lam I)^-1 X' (full - left), from the recorded queries and kept columns."""
    kept = [e.start + int(n) for n in e.kept[0, head]]
    outside = [n for n in range(len(keys)) if not e.start <= n < e.end]
    x, lost = [], []
    for g in range(GROUP):
        for i, token in enumerate(e.queries.tolist()):
            asks = turned(q[0, GROUP * head + g, token], e.at + i % e.span - token)
            logits = 0.5 * torch.stack(keys) @ asks
            left = logits[kept + outside].softmax(0)
            x.append(left[: len(kept)])
            stay = torch.stack([values[n] for n in kept + outside])
            lost.append(logits.softmax(0) @ torch.stack(values) - left @ stay)
    X, Y = torch.stack(x), torch.stack(lost)
    gram = X.T @ X
    ridge = e.ridge * gram.trace() / len(kept) + 1e-12
    new = torch.linalg.inv(gram + ridge * torch.eye(len(kept), dtype=gram.dtype)) @ X.T @ Y
    keys[e.start : e.end] = [keys[n] for n in kept]
    values[e.start : e.end] = [values[n] + new[i] for i, n in enumerate(kept)]


def turned(q_D: Tensor, by: int) -> Tensor:
    cos, sin = (by * INV_FREQ).cos(), (by * INV_FREQ).sin()
    return torch.cat([q_D[:2] * cos - q_D[2:] * sin, q_D[2:] * cos + q_D[:2] * sin])


def test_attention_and_the_exact_gradient_are_those_of_plain_loops() -> None:
    given = inputs()
    ours, loops = attended(replay("exact"), *given), plain(*given)
    torch.testing.assert_close(ours, loops, atol=1e-12, rtol=1e-10)
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, expected = (torch.autograd.grad((x * weight).sum(), given) for x in (ours, loops))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("gradient", ["map", "exact", "none"])
def test_what_goes_forward_does_not_depend_on_what_flows_back(gradient: Any) -> None:
    given = inputs()
    torch.testing.assert_close(attended(replay(gradient), *given), plain(*given), atol=1e-12, rtol=1e-10)


def test_the_gradient_through_the_frozen_map_is_that_of_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    made, maps, given = replay("map"), list[Tensor](), inputs()
    real = slots.Fit.map
    monkeypatch.setattr(slots.Fit, "map", lambda *args: maps.append(real(*args)) or maps[-1])
    attended(made, *given)
    assert [m.requires_grad for m in maps] == [False, False]

    def frozen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        held = iter(maps)
        monkeypatch.setattr(slots.Fit, "map", lambda *_: next(held))
        return attended(made, q, k, v)

    assert torch.autograd.gradcheck(frozen, given, eps=1e-6, atol=1e-7)


def test_none_lets_nothing_back_into_what_an_event_took() -> None:
    q, k, v = inputs()
    late = attended(replay("none"), q, k, v)[:, :, 11:]
    for grad in torch.autograd.grad(late.sum(), (k, v)):
        assert (grad[:, :, 1:6] == 0).all() and (grad[:, :, 0] != 0).any()
    through = torch.autograd.grad(attended(replay("map"), q, k, v)[:, :, 11:].sum(), v)[0]
    assert (through[:, :, 1:6] != 0).any()


def rows() -> list[Row]:
    talk = Talk(tiny_model(layers=3), 3)
    turns = [reply(talk, list(range(40, 70)), 12, (6, 2, 30)), reply(talk, list(range(80, 100)), 12, (5, 2, 34))]
    return pack(merge([played(*turns)]), 200)[0]


def gradient(found: list[Row], how: Any, policy: Policy | None = None) -> Tensor:
    trainer = Trainer(policy or tiny_model(layers=3), TrainConfig(), choose(SftConfig()), gradient=how)
    trainer.accumulate(found, Tally())
    return torch.cat([w.grad.flatten() for w in trainer.policy.model.parameters() if w.grad is not None])


def test_the_map_s_gradient_points_nearer_to_the_exact_one_than_that_of_detached_slots() -> None:
    found = rows()
    grads = {how: gradient(found, how) for how in ("exact", "map", "none")}
    cosines = {h: float(torch.cosine_similarity(grads[h], grads["exact"], dim=0)) for h in ("map", "none")}
    assert 1.0 > cosines["map"] > cosines["none"] > 0.5
    assert cosines["map"] > 0.99


@pytest.mark.parametrize("how", ["map", "exact"])
def test_layers_that_are_computed_again_give_the_same_gradient(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, policy, made = rows(), tiny_model(layers=3), list[int]()
    plain_grad = gradient(found, how)
    real = slots.Fit.map
    monkeypatch.setattr(slots.Fit, "map", lambda self, layer, *args: made.append(layer) or real(self, layer, *args))
    compute_again(policy)
    torch.testing.assert_close(gradient(found, how, policy), plain_grad, atol=0, rtol=0)
    assert made == [0, 0, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0]


def test_layers_computed_again_sample_without_it() -> None:
    policy = tiny_model()
    ids, places = torch.tensor([[3, 4, 5]]), torch.arange(3)[None]
    before = policy.hidden(ids, places)
    compute_again(policy)
    with torch.inference_mode():
        assert torch.equal(policy.hidden(ids, places), before)
