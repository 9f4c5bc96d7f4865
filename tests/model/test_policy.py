"""Models are loaded exactly or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    MambaConfig,
    PreTrainedConfig,
    StableLmConfig,
)

from turnwise.config.run import TinyConfig
from turnwise.errors import ConfigError, ModelError
from turnwise.model import Policy, load, tiny
from turnwise.model.attention import NAME
from turnwise.model.load import check, pick
from turnwise.testing import tiny_model


def test_a_saved_policy_loads_with_equal_weights_and_tokenizer(tmp_path: Path) -> None:
    policy = tiny_model(seed=3)
    policy.save(tmp_path)
    again = load(str(tmp_path))
    states = [p.model.state_dict().values() for p in (policy, again)]
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))
    text = [{"role": "user", "content": "go forward\n"}]
    assert AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(
        text, tokenize=False
    ) == policy.tokenizer.apply_chat_template(text, tokenize=False)


def test_the_seed_decides_the_first_weights_and_leaves_the_global_state_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (tiny_model(seed=s).model.lm_head.weight for s in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_model_that_does_not_load_says_what_names_exist(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected `tiny`, `smollm2`, a folder"):
        load(str(tmp_path / "none"))


def test_logits_changed_after_the_projection_are_refused() -> None:
    policy = tiny_model()
    policy.model.lm_head.register_forward_hook(lambda module, args, out: out * 2 if args[0].ndim == 3 else out)
    with pytest.raises(ModelError, match="changes its logits"):
        check(policy)


def test_rotary_angles_that_depend_on_length_are_refused() -> None:
    policy = tiny_model()
    policy.model.config.rope_parameters["rope_type"] = "dynamic"
    with pytest.raises(ModelError, match="dynamic"):
        check(policy)


@pytest.mark.parametrize(
    "config",
    [
        MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=2),
        BloomConfig(vocab_size=97, hidden_size=32, n_layer=2, n_head=4),
        StableLmConfig(
            vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2,
        ),
    ],
    ids=lambda config: config.model_type,
)  # fmt: skip
def test_models_whose_layers_do_not_use_the_registered_attention_are_refused(config: PreTrainedConfig) -> None:
    model = AutoModelForCausalLM.from_config(config, attn_implementation=NAME)
    with pytest.raises(ModelError, match="attends in full"):
        check(Policy(model, None))


def test_the_dtype_asked_for_is_the_dtype_of_the_tiny_model() -> None:
    policy = tiny.build([], TinyConfig(width=32), 0, "cpu", "bfloat16")
    assert {p.dtype for p in policy.model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(("device", "said"), [("gpu", "expected auto, cpu"), ("cuda:7", "device 'cuda:7'")])
def test_a_device_that_is_not_there_is_refused(device: str, said: str) -> None:
    if device == "gpu" or not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=said):
            pick(device)
