"""A name to a policy: model, tokenizer and vocabulary head, checked to be ones we can compute exactly."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.errors import ConfigError, ModelError
from turnwise.model import smollm2
from turnwise.model.attention import NAME, causal

EXPECTED = (
    "expected `tiny`, `smollm2`, a folder with config.json, weights and tokenizer, or a hub name this machine can reach"
)
PLAIN = "expected a model whose every layer attends in full through that registry (Llama, Qwen, GPT-2, OLMo, ...)"
LENGTH_DEPENDENT_ROPE = {"dynamic", "longrope"}


@dataclass(slots=True)
class Policy:
    """A causal language model with its tokenizer. It stays in eval mode: dropout would break replay parity."""

    model: Any
    tokenizer: Any

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def vocab(self) -> int:
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def context(self) -> int:
        """The longest sequence the model was made for."""
        return int(self.model.config.get_text_config().max_position_embeddings)

    @property
    def inv_freq(self) -> Tensor:
        """How fast each pair of numbers of a query turns with its position; compaction turns queries by it."""
        found: Tensor | None = getattr(getattr(self.model.base_model, "rotary_emb", None), "inv_freq", None)
        if found is None:
            raise ModelError(
                f"found {type(self.model).__name__}, whose positions are not rotary; expected a rotary model, so that "
                "its cache can be compacted"
            )
        return found

    def hidden(self, ids_BT: Tensor, positions_BT: Tensor, attend: Any = None) -> Tensor:
        """Last hidden states [B, T, W]."""
        out = self.model.base_model(input_ids=ids_BT, position_ids=positions_BT, use_cache=False, attend=attend)
        hidden: Tensor = out.last_hidden_state
        return hidden

    def head(self, hidden_NW: Tensor) -> Tensor:
        logits: Tensor = self.model.get_output_embeddings()(hidden_NW)
        return logits

    def save(self, folder: Path) -> None:
        """Write weights, config and tokenizer as Hugging Face does; progress bars swallowed."""
        with contextlib.redirect_stderr(io.StringIO()):
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def load(name: str, dtype: str = "float32", device: str = "auto") -> Policy:
    """Load `smollm2`, a folder in Hugging Face layout, or a hub name."""
    folder = str(smollm2.folder() if name == "smollm2" else Path(name).expanduser())
    local = name.startswith((".", "/", "~")) or name.count("/") > 1  # no hub name has two
    if local and not (Path(folder) / "config.json").is_file():
        raise ModelError(f"found model {name!r}, a folder without config.json; {EXPECTED}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        with contextlib.redirect_stderr(io.StringIO()):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation=NAME)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"found model {name!r}, which does not load: {str(error).splitlines()[0].rstrip('.')}; {EXPECTED}"
        ) from error
    policy = Policy(model, tokenizer)
    policy.model.to(pick(device))
    return check(policy)


@torch.no_grad()
def reload(policy: Policy, folder: Path) -> None:
    """Copy the weights saved in a folder into a policy of the same shape, all of them or, where they differ, none."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            saved = AutoModelForCausalLM.from_pretrained(str(folder), dtype=policy.model.dtype, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"found weights {str(folder)!r}, which do not load: {str(error).splitlines()[0]}") from error
    new, old = dict(saved.named_parameters()), dict(policy.model.named_parameters())
    if {n: p.shape for n, p in new.items()} != {n: p.shape for n, p in old.items()}:
        raise ModelError(f"found weights {str(folder)!r} of another shape; expected those of the model being served")
    for name, parameter in old.items():
        parameter.copy_(new[name])


def pick(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"found device {device!r}; expected auto, cpu, cuda, or cuda:0, cuda:1, ...") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"found device {device!r}, and torch sees no CUDA here; expected auto or cpu")
    return found


def check(policy: Policy) -> Policy:
    """Put the model in eval mode and refuse what would not be exact."""
    policy.model.eval()
    rope = getattr(policy.model.config.get_text_config(), "rope_parameters", None) or {}
    if rope.get("rope_type") in LENGTH_DEPENDENT_ROPE:
        raise ModelError(
            f"found rotary embedding {rope['rope_type']!r}, whose angles depend on the length of the input, so that a "
            "packed row cannot equal its parts; expected one with fixed angles (default, linear, yarn, llama3)"
        )
    _check_attention(policy)
    _check_head(policy)
    return policy


@torch.no_grad()
def _check_attention(policy: Policy) -> None:
    """Every layer must use our attention: another mixer would see what a token should not see."""
    seen: list[tuple[int, bool]] = []

    def spy(layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        seen.append((layer, k.shape == v.shape and q.shape[-1] == k.shape[-1]))
        return causal(layer, q, k, v, scale)

    layers = policy.model.config.get_text_config().num_hidden_layers
    try:
        policy.hidden(*probe(policy), spy)
    except (KeyError, AttributeError, TypeError, IndexError, RuntimeError) as error:
        raise ModelError(f"{type(policy.model).__name__} fails in its attention: {error!r}; {PLAIN}") from error
    if seen != [(layer, True) for layer in range(layers)]:
        raise ModelError(
            f"{type(policy.model).__name__} has {layers} layers, of which {len(seen)} use the attention registered "
            f"with transformers, on keys and values of one shape; {PLAIN}"
        )


def probe(policy: Policy) -> tuple[Tensor, Tensor]:
    """Four tokens and their positions."""
    places = torch.arange(4, device=policy.device)[None]
    return places % policy.vocab, places


@torch.no_grad()
def _check_head(policy: Policy) -> None:
    """Some models scale or cap logits after the projection; scoring from hidden states would then be wrong."""
    ids, places = probe(policy)
    whole = policy.model(input_ids=ids, use_cache=False).logits[0]
    ours = policy.head(policy.hidden(ids, places)[0])
    if whole.shape != ours.shape or not torch.allclose(whole, ours, atol=1e-4):
        raise ModelError(
            f"{type(policy.model).__name__} changes its logits after the vocabulary projection; "
            "expected a model whose logits are the output embedding of its last hidden state"
        )


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
