"""Packed linear layers compute what the model computes, whatever the batch, and follow its weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from turnwise.model.packed import PackedLinear, forget, sampler
from turnwise.testing import tiny_model


def logits(policy, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return policy.head(policy.hidden(ids, torch.arange(ids.shape[1])[None].expand_as(ids)))


def tokens(policy, rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, policy.vocab, (rows, length), generator=torch.Generator().manual_seed(1))


def test_it_computes_what_the_model_computes():
    policy = tiny_model()
    ids = tokens(policy, 3, 17)
    torch.testing.assert_close(logits(sampler(policy), ids), logits(policy, ids), atol=2e-6, rtol=1e-5)


def test_every_linear_layer_is_packed_and_every_parameter_shared():
    policy = tiny_model()
    twin = sampler(policy)
    linears = sum(type(m) is nn.Linear for m in policy.model.modules())
    assert sum(isinstance(m, PackedLinear) for m in twin.model.modules()) == linears > 0
    assert {id(p) for p in twin.model.parameters()} == {id(p) for p in policy.model.parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_alone_is_the_row_in_a_batch_to_the_bit(dtype):
    linear = PackedLinear(nn.Linear(192, 96).to(dtype))
    x = torch.randn(33, 192, generator=torch.Generator().manual_seed(2)).to(dtype)
    with torch.inference_mode():
        whole = linear(x)
        assert all(torch.equal(linear(x[:rows]), whole[:rows]) for rows in (1, 2, 7, 32))


def test_a_step_of_the_trainer_is_seen_without_being_told():
    policy = tiny_model()
    twin, ids = sampler(policy), tokens(policy, 1, 9)
    before = logits(twin, ids)
    policy.model(input_ids=ids).logits.sum().backward()
    torch.optim.AdamW(policy.model.parameters(), lr=0.1).step()
    assert not torch.allclose(before, logits(twin, ids))
    torch.testing.assert_close(logits(twin, ids), logits(policy, ids), atol=2e-5, rtol=1e-4)


def test_weights_changed_behind_torchs_back_are_seen_once_they_are_forgotten():
    policy = tiny_model()
    twin, ids = sampler(policy), tokens(policy, 1, 9)
    logits(twin, ids)
    for parameter in policy.model.parameters():
        parameter.data.mul_(1.5)
    forget(twin)
    torch.testing.assert_close(logits(twin, ids), logits(policy, ids), atol=2e-5, rtol=1e-4)


def test_the_policy_stays_as_it_was():
    policy = tiny_model()
    names = [(name, type(m)) for name, m in policy.model.named_modules()]
    sampler(policy)
    assert [(name, type(m)) for name, m in policy.model.named_modules()] == names


def test_a_model_may_ask_a_packed_layer_about_the_layer_it_packs():
    linear = nn.Linear(4, 6, bias=False)
    packed = PackedLinear(linear)
    assert (packed.weight is linear.weight, packed.out_features, packed.bias) == (True, 6, None)
