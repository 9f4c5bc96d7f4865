"""A small Llama from random weights, with a tokenizer trained on the text it will read; saved like any other model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from turnwise.config.run import TinyConfig
from turnwise.model.attention import NAME
from turnwise.model.load import Policy, check, pick
from turnwise.text.jinja import TEMPLATE

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
ROLES = ("system", "user", "assistant", "tool")


def train_tokenizer(texts: Iterable[str], vocab: int, marks: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Byte-level BPE over `texts`; role names are part of the corpus, since every turn is full of them. Each of `marks`
    is one more token."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = [f"{role}\n" for role in ROLES for _ in range(8)]
    core.train_from_iterator([*corpus, *texts], trainer)
    core.add_tokens([*marks])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=START, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def build(
    texts: Iterable[str],
    config: TinyConfig,
    seed: int,
    device: str = "auto",
    dtype: str = "float32",
    marks: Sequence[str] = (),
) -> Policy:
    """The policy that `model = "tiny"` names."""
    tokenizer = train_tokenizer(texts, config.vocab, marks)
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        intermediate_size=4 * config.width * 2 // 3,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.context,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
        initializer_range=config.init,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(shape)
    model.set_attn_implementation(NAME)
    policy = Policy(model.to(getattr(torch, dtype)), tokenizer)
    policy.model.to(pick(device))
    return check(policy)
