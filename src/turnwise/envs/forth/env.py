"""In: tool calls. Out: what the tools answer. A task asks for a program that turns numbers on the stack into others.

`run_code` tries a program, `lookup_docs` explains words, `submit_code` ends the episode: the program is run on inputs
that were not shown, and all of them have to come out right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from turnwise.envs.forth.machine import Result
from turnwise.envs.forth.tasks import ONE, TIERS, TWO, single, solve, tasks
from turnwise.envs.forth.words import DOCS
from turnwise.errors import ConfigError, DataError
from turnwise.types import Message, Observation, Task, Tool

SYSTEM = "You write programs in Forth. Try them with run_code, look words up with lookup_docs, end with submit_code."
WORDS = (*TWO, *ONE)
NO_CALL = "Call a tool: run_code, lookup_docs or submit_code."
TEXTS = {"run_code": "code", "submit_code": "code", "lookup_docs": "word"}
"""The one text that each tool takes."""
ABOUT = {
    "run_code": "Runs a program on the example's numbers.",
    "submit_code": "Hands the program in.",
    "lookup_docs": "Explains a word.",
}
TOOLS: list[Tool] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": ABOUT[name],
            "parameters": {"type": "object", "properties": {text: {"type": "string"}}, "required": [text]},
        },
    }
    for name, text in TEXTS.items()
]


class Forth:
    """One programming task.

    tiers: which of the tiers 0 to 3 tasks come from. words: those that tasks may ask for. split: "word" holds out
    words, so that held-out tasks need ones that were never trained; "task" holds out tasks only. max_calls: replies an
    episode may take. partial: the reward of a wrong submission, times the share of inputs that come out right.
    """

    def __init__(
        self,
        tiers: Sequence[int] = (0, 1),
        words: Sequence[str] = WORDS,
        split: str = "word",
        max_calls: int = 6,
        partial: float = 0.0,
    ) -> None:
        _check(tiers, words, split)
        if max_calls < 1 or not 0.0 <= partial <= 1.0:
            raise ConfigError(f"found max_calls {max_calls}, partial {partial}; expected at least 1, and a share")
        self.max_calls = max_calls
        self.partial = partial
        self.task: Task | None = None
        self.done = False
        self.replies = 0
        self.counts = dict.fromkeys([*TEXTS, "invalid"], 0)

    @staticmethod
    def tasks(
        tiers: Sequence[int] = (0, 1), words: Sequence[str] = WORDS, split: str = "word", **_: Any
    ) -> Iterable[Task]:
        """Tasks without end."""
        _check(tiers, words, split)
        return tasks(tiers, words, split)

    async def start(self, task: Task) -> Observation:
        """The goal, with one example."""
        if self.task is not None:
            raise DataError("found an environment that was started before; expected a new one for every episode")
        self.task = task
        given = self._given(0)
        names = "a lies on the stack" if len(given) == 1 else "a and b lie on the stack, b on top"
        left = " ".join(map(str, solve(task.data["program"], given).stack))
        said = f"{names}. Leave {task.data['goal']}.\nExample: {' '.join(map(str, given))} becomes {left}"
        hint: Message = {"role": "system", "content": f"This program solves it: {task.data['program']}"}
        start: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": said}]
        return Observation(start, tools=TOOLS, oracle=[hint])

    async def step(self, message: Message) -> Observation:
        """Answer every call of a reply; a submission ends the episode."""
        if self.task is None or self.done:
            raise DataError(
                f"found a step {'after the end' if self.done else 'before the start'}; expected start, step, close"
            )
        self.replies += 1
        passed, answers = None, []
        for call in message.get("tool_calls") or []:
            name, text, wrong = read(call)
            self.counts[name if name in TEXTS and not wrong else "invalid"] += 1
            if not wrong and name == "submit_code":
                passed = self._passed(text)
            said = wrong or (f"{passed:.0%} of the inputs right" if name == "submit_code" else self._tool(name, text))
            answers.append({"role": "tool", "tool_call_id": call.get("id"), "name": name, "content": said})
            if passed is not None:
                break
        for failed in message.get("failed_calls") or []:
            self.counts["invalid"] += 1
            answers.append(
                {"role": "user", "content": f"This tool call can not be read: {failed['status']}. {NO_CALL}"}
            )
        self.counts["invalid"] += not answers
        return self._seen(answers or [{"role": "user", "content": NO_CALL}], passed)

    async def close(self) -> None:
        """Nothing is held."""

    def _seen(self, answers: list[Message], passed: float | None) -> Observation:
        """The answers, and at the end the reward."""
        self.done = passed is not None or self.replies >= self.max_calls
        seen = Observation(answers, done=self.done)
        if self.done:
            won = passed == 1.0
            seen.reward = 1.0 if won else self.partial * (passed or 0.0)
            calls = {name: float(n) for name, n in self.counts.items()}
            seen.metrics = {"success": float(won), "inputs_right": passed or 0.0, **calls}
        return seen

    def _given(self, n: int) -> list[int]:
        assert self.task is not None
        given: list[int] = self.task.data["inputs"][n]
        return given

    def _tool(self, name: str, text: str) -> str:
        return lookup(text) if name == "lookup_docs" else told(solve(text, self._given(0)))

    def _passed(self, program: str) -> float:
        """The share of the inputs, the example among them, that the program turns into what the task's own does."""
        assert self.task is not None
        inputs = self.task.data["inputs"]
        return sum(_same(program, self.task.data["program"], given) for given in inputs) / len(inputs)


def read(call: Any) -> tuple[str, str, str | None]:
    """A call's tool, its text, and what is wrong with it; arguments are a JSON text or an object."""
    function = call.get("function") or {}
    name, given = str(function.get("name")), function.get("arguments")
    if name not in TEXTS:
        return name, "", f"no tool {name}; there are {', '.join(TEXTS)}"
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        arguments = None
    text = arguments.get(TEXTS[name]) if isinstance(arguments, dict) else None
    if not isinstance(text, str):
        return name, "", f"{name} takes one text, {TEXTS[name]!r}"
    return name, text, None


def told(result: Result) -> str:
    """What a program did, as a tool says it: "stack: 3 4", with output and error where there are some."""
    lines = [f"output: {result.output}"] if result.output else []
    lines += [f"error: {result.error}"] if result.error else []
    return "\n".join([*lines, "stack: " + (" ".join(map(str, result.stack)) or "empty")])


def lookup(word: str) -> str:
    """A word's effect and meaning, or the nearest words."""
    name = word.strip().lower()
    if name in DOCS:
        return DOCS[name].line(name)
    near = get_close_matches(name, DOCS, n=5, cutoff=0.3) or sorted(DOCS)
    return f"no word {word.strip()}; there are {' '.join(near)}"


def _same(program: str, reference: str, given: Sequence[int]) -> bool:
    ours = solve(program, given)
    return ours.error is None and ours.stack == solve(reference, given).stack


def _check(tiers: Sequence[int], words: Sequence[str], split: str) -> None:
    """Refuse arguments out of range."""
    if not tiers or not set(tiers) <= set(TIERS):
        raise ConfigError(f"found tiers {[*tiers]}; expected some of {[*TIERS]}")
    if not words or not set(words) <= set(WORDS):
        raise ConfigError(f"found words {[*words]}; expected some of {[*WORDS]}")
    if {1, 2} & set(tiers) and len(single(words)) < 2:
        raise ConfigError(
            f"found words {[*words]} for tiers {[*tiers]}; expected at least two that turn two numbers into one"
        )
    if split not in ("word", "task"):
        raise ConfigError(f"found split {split!r}; expected 'word' or 'task'")
