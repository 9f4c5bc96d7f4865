"""docs/mistakes.md: what a user gets for wrong configs, turns, messages and filters. Run as a program, it writes it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from echoed import chosen, reads
from played import played, tight, turn
from turnwise.config import load
from turnwise.errors import TurnwiseError
from turnwise.testing import byte_tokenizer
from turnwise.text import Dialogue
from turnwise.text.choose import choose
from turnwise.trees import merge
from turnwise.types import Attribution, Event, Support

PAGE = Path(__file__).parents[1] / "docs" / "mistakes.md"
HEAD = """# Mistakes, and what is said of them

Every message says what was found and what was expected, and where it can, how to mend it. A config is read to its end,
so that all its mistakes are named at once; data is refused before anything is trained on it.
"""
CONFIGS = (
    "--train.lrr 1",
    "--lr 1",
    "--train 1",
    "--train.lr",
    "--train.lr fast",
    "--train.lr nan",
    "--train.steps 0",
    "--train.betas 0.9",
    "--train.share grop",
    "--train.updates 99",
    "--train.warmup 9 --train.decay 5",
    "--loss.type grppo",
    "--loss.type grpo --loss.kl_tau 1",
    "--loss.type sft",
    "--advantage.discount 0.5",
    "--env.group 1",
    "--env.sampling.temperature 0",
    "--env.sampling.choices go go",
    '--env.sampling.choices ""',
    '--env.args {"a":null}',
    "--tiny.heads 3",
    "--name a/b",
    "--env.echo.user.alpha inf",
    '--env.echo.filter.import_path "a:b"',
    "--env.echo.tool.tool_names look look",
    "--env.echo.usr.alpha 1",
    "--env.echo.user.alpha 1 --env.echo.normalization globl",
    "--loss.type sft --advantage.type none --env.echo.user.alpha 1",
    "run.toml",
    "@ absent.toml",
)
COMPACTION = (
    "--rollout.compaction.trigger budget",
    "--rollout.compaction.trigger turns",
    "--rollout.compaction.trigger segments --rollout.compaction.window 9",
    "--rollout.compaction.trigger turns --rollout.compaction.protect-turns 2 --rollout.compaction.window 40",
    "--rollout.compaction.trigger turns --rollout.compaction.protect-turns 2 --rollout.compaction.max-kv-tokens 90",
    "--rollout.compaction.trigger turns --rollout.compaction.protect-turns 2 --rollout.compaction.protect-tokens 4",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.protect-turns 1",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.every 8",
    "--rollout.compaction.triger budget",
    "--rollout.compaction.trigger bugdet",
    "--rollout.compaction.max-kv-tokens 0",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.protect user",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.protect 90",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.protect-tokens 95",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.window 91",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.ratio 1.0",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.ratio 0",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.method delete --rollout.compaction.ratio 0.5",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.carry-ratio 0.5",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.method delete --rollout.compaction.carry-tail 9",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.method evict --rollout.compaction.ridge 0.1",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.bias true",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.uniform false",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.source keys",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.method delete_reread --loss.type gspo",
    "--eval.cache both",
    "--eval.cache whole --eval.compaction.max-kv-tokens 90",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.notice.template at:{left}",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.notice.template {left}",
    "--rollout.compaction.max-kv-tokens 90 --rollout.compaction.gradient full",
)


def struck(at: int, start: int, end: int) -> Event:
    """An event that keeps nothing."""
    return Event(at, start, end, "delete", np.zeros((1, 1, 0), np.int16), np.zeros(0, np.int32))


WHO = Attribution(np.zeros(2, np.int32), np.ones(2, np.int8), ("user",), (None,))
SOUND = turn([1, 2], [3, 4])
TURNS = {
    "no prompt": turn([], [3]),
    "two tokens, one log-probability": turn([1], [3, 4], [-1.0]),
    "one token, two versions": turn([1], [3], versions=[0, 0]),
    "two tokens, one support": turn([1], [3, 4], support=tight([3])),
    "a log-probability that is NaN": turn([1], [3, 4], [-1.0, np.nan]),
    "one that is minus infinity": turn([1], [3, 4], [-np.inf, -1.0]),
    "one above 0": turn([1], [3, 4], [-1.0, 0.5]),
    "a negative version": turn([1], [3, 4], versions=[0, -1]),
    "a negative id that was read": turn([1, -7], [3]),
    "a negative id that was sampled": turn([1], [3, -2]),
    "a support without its token": turn([1], [3, 4], support=tight([3], [5, 6])),
    "support offsets that fall": replace(
        SOUND, support=Support(np.array([3, 4], np.int32), np.array([0, 2, 1], np.int32))
    ),
    "ids as floats": replace(SOUND, prompt_ids=np.array([1.0, 2.0])),
    "ids as a list": replace(SOUND, completion_ids=[3, 4]),
    "log-probabilities in two dimensions": replace(SOUND, logprobs=np.zeros((2, 1), np.float32)),
    "an event at its first token": replace(SOUND, events=(struck(0, 0, 0),)),
    "an event behind its last token": replace(SOUND, events=(struck(4, 0, 1),)),
    "events out of order": replace(SOUND, events=(struck(3, 0, 1), struck(2, 0, 1))),
    "an event over more than there was": replace(SOUND, events=(struck(3, 1, 5),)),
    "an attribution of another length": replace(SOUND, prompt_ids=np.ones(3, np.int32), attribution=WHO),
}
FILTERS: dict[str, Callable[[Any], Any]] = {
    "a dictionary": lambda _: {0: True},
    "nothing": lambda _: None,
    "an array over turns": lambda _: np.ones((1, 5), np.bool_),
    "no masks": lambda _: [],
    "one boolean for a turn": lambda _: [True],
    "a text for a turn": lambda _: ["11111"],
    "a mask of the prompt alone": lambda _: [[True] * 4],
    "numbers": lambda _: [np.ones(5, np.int64)],
    "None in a mask": lambda _: [[None] * 5],
}


MESSAGES = {
    "no role": [{"content": "hi"}],
    "a number for a text": [{"role": "user", "content": 3}],
    "a picture": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    "a call without a name": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": "{}"}}]}],
}


def said(call: Callable[[], object]) -> str:
    """The message of the error that the call raises."""
    try:
        call()
    except TurnwiseError as error:
        return str(error)
    raise AssertionError("found no error; expected one")


def _config(words: str) -> str:
    lines = said(lambda: load(shlex.split(words.replace('{"a":null}', "'{\"a\":null}'")))).splitlines()
    return "; ".join(line.strip() for line in lines[1:])


def _filter(answer: Callable[[Any], Any]) -> str:
    sys.modules["my_filters"] = module = ModuleType("my_filters")
    module.given = answer
    rule = {"user": {}, "filter": {"import_path": "my_filters:given"}}
    return said(lambda: chosen([played(reads(("user", [5, 6]), wrote=[7]))], **rule))


def _messages(messages: list[dict[str, Any]]) -> str:
    tokenizer = byte_tokenizer()
    return said(lambda: Dialogue(choose(tokenizer, "chatml", "tiny")).add(messages))


def _table(title: str, first: str, rows: dict[str, str]) -> str:
    lines = [f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows.items()]
    return "\n".join([f"\n## {title}\n", f"| {first} | what is said |", "|---|---|", *lines, ""])


def page() -> str:
    return HEAD + "".join(
        [
            _table("Configs", "`turnwise train ...`", {words: _config(words) for words in CONFIGS}),
            _table("Compaction", "`turnwise train ...`", {words: _config(words) for words in COMPACTION}),
            _table("Turns", "a turn with", {n: said(lambda t=t: merge([played(t)])) for n, t in TURNS.items()}),
            _table("Messages", "a conversation with", {name: _messages(m) for name, m in MESSAGES.items()}),
            _table("Echo filters", "a filter that returns", {name: _filter(f) for name, f in FILTERS.items()}),
        ]
    )


def test_the_page_of_mistakes_says_what_a_user_gets(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    assert PAGE.read_text() == page()


if __name__ == "__main__":
    PAGE.write_text(page())
