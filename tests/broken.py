"""A run whose template forgets what was thought, so that every turn after the first breaks its prefix."""

from __future__ import annotations

from pathlib import Path

from small import config
from turnwise.config import RunConfig
from turnwise.config.loss import DppoConfig
from turnwise.config.run import EnvConfig, EvalConfig, SamplingConfig, TrainConfig
from turnwise.testing import tiny_model

# Draws the reasoning of the last reply only.
FORGETFUL = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def forgetful(out: Path, steps: int = 2, tasks: int = 2, passes: int = 1, export: int = 2) -> RunConfig:
    """Exports the tokens of every `export`-th step."""
    model = tiny_model()
    model.tokenizer.chat_template = FORGETFUL
    model.save(out / "model")
    said = [f"<think>hm</think>{act}" for act in ("turn left", "go forward")]
    # No action among these picks anything up, so every episode has all of its turns.
    args = {"level": "BabyAI-PickupLoc-v0", "max_steps": 3}
    env = EnvConfig(group=2, max_turns=3, args=args, sampling=SamplingConfig(choices=said))
    train = TrainConfig(
        steps=steps, tasks=tasks, updates=2, passes=passes, lr=3e-3, threads=1, export_tokens=export, row_tokens=3000
    )
    none = EvalConfig(tasks=0)
    return config(
        out, env=env, model=str(out / "model"), renderer="template", train=train, eval=none, loss=DppoConfig()
    )
