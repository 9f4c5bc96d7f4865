"""In: tool calls, or one answer. Out: passages, one a call or all at once, and whether the answer was right.

Reading everything does not fit into a small context: whoever keeps the sentences that matter can answer, and nobody
else beats a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from itertools import count
from typing import Any

from turnwise.envs.passages.world import COLOURS, Shape, check, make
from turnwise.errors import ConfigError, DataError
from turnwise.types import Message, Observation, Task, Tool

MODES = ("turns", "words", "all")
SYSTEM = {
    "turns": "Find the answer in the passages: read_passage shows one, answer ends. The answer is one word, a colour.",
    "words": "Find the answer in the passages. Reply next for one more, or with the answer. It is one word, a colour.",
    "all": "Find the answer in the passages. Reply with one word, a colour.",
}
NO_CALL = "Call a tool: read_passage or answer."
NO_WORD = "Reply next, or with a colour."
COLOUR = re.compile(rf"\b({'|'.join(COLOURS)})\b")


def _tool(name: str, about: str, field: str, type: str, needed: bool) -> Tool:
    parameters = {"type": "object", "properties": {field: {"type": type}}, "required": [field] if needed else []}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


TOOLS: list[Tool] = [
    _tool("read_passage", "Shows a passage, by default the next one.", "number", "integer", needed=False),
    _tool("answer", "Ends with an answer.", "text", "string", needed=True),
]


class Passages:
    """One question.

    mode: "turns" shows one passage a call of read_passage, "words" shows one a reply of next and has no tools, "all"
    shows every passage before the question and takes one reply. passages: how many there are. hops: how many of them
    the answer needs. rivals: how many say the same of others; the rest says nothing. sentences: of filler, beside the
    fact of a passage. names: from how many people and cities names are drawn. colours: how many answers there are.
    split: "chain" holds out who is asked about together with the answer, "task" holds out tasks only. max_calls:
    replies an episode may take where passages are shown one by one, two more than there are passages if None. partial:
    the reward of a wrong answer, times the share of the needed passages that were read.
    """

    def __init__(
        self,
        mode: str = "turns",
        passages: int = 40,
        hops: int = 2,
        rivals: int = 20,
        sentences: int = 5,
        names: int = 100,
        colours: int = 8,
        split: str = "chain",
        max_calls: int | None = None,
        partial: float = 0.0,
    ) -> None:
        check(Shape(passages, hops, rivals, sentences, names, colours))
        if mode not in MODES or split not in ("chain", "task"):
            raise ConfigError(f"found mode {mode!r}, split {split!r}; expected one of {MODES}, 'chain' or 'task'")
        if (max_calls is not None and max_calls < 1) or not 0.0 <= partial <= 1.0:
            raise ConfigError(f"found max_calls {max_calls}, partial {partial}; expected at least 1, and a share")
        self.mode = mode
        self.partial = 0.0 if mode == "all" else partial
        self.max_calls = 1 if mode == "all" else max_calls or passages + 2
        self.task: Task | None = None
        self.done = False
        self.replies = 0
        self.invalid = 0
        self.read: list[int] = []

    @staticmethod
    def tasks(
        passages: int = 40,
        hops: int = 2,
        rivals: int = 20,
        sentences: int = 5,
        names: int = 100,
        colours: int = 8,
        split: str = "chain",
        **_: Any,
    ) -> Iterable[Task]:
        """Questions without end, one for each number 0, 1, 2, ..."""
        shape = Shape(passages, hops, rivals, sentences, names, colours)
        check(shape)
        for number in count():
            world = make(number, shape)
            held = "/".join(["passages", *world.chain]) if split == "chain" else None
            yield Task(f"passages/{shape.kind}/{number}", asdict(world), split=held)

    async def start(self, task: Task) -> Observation:
        """The question, behind all passages or before the first."""
        if self.task is not None:
            raise DataError("found an environment that was started before; expected a new one for every episode")
        self.task = task
        hint: Message = {"role": "system", "content": f"Only this matters: {' '.join(task.data['chain'])}"}
        rules: Message = {"role": "system", "content": SYSTEM[self.mode]}
        asked = task.data["question"]
        if self.mode != "all":
            said = f"{asked} There are {len(task.data['passages'])} passages."
            tools = TOOLS if self.mode == "turns" else None
            return Observation([rules, {"role": "user", "content": said}], tools=tools, oracle=[hint])
        whole = "\n".join(map(self._passage, range(len(task.data["passages"]))))
        return Observation(
            [rules, {"role": "user", "content": whole}, {"role": "user", "content": asked}], oracle=[hint]
        )

    async def step(self, message: Message) -> Observation:
        """Show what was asked for; an answer ends the episode, and so does the last reply that is allowed."""
        if self.task is None or self.done:
            raise DataError(
                f"found a step {'after the end' if self.done else 'before the start'}; expected start, step, close"
            )
        self.replies += 1
        return self._seen(*(self._calls(message) if self.mode == "turns" else self._words(message)))

    async def close(self) -> None:
        """Nothing is held."""

    def _words(self, message: Message) -> tuple[list[Message], str | None]:
        """What a reply in words is answered with, and the answer it gives."""
        said = str(message.get("content") or "").lower()
        if self.mode == "all" or COLOUR.search(said):
            self.invalid += not COLOUR.search(said)
            return [], said
        if "next" not in said:
            self.invalid += 1
            return [{"role": "user", "content": NO_WORD}], None
        return [{"role": "user", "content": self._read(self._following())}], None

    def _calls(self, message: Message) -> tuple[list[Message], str | None]:
        """What the calls of a reply are answered with, up to one that gives the answer."""
        answers: list[Message] = []
        for call in message.get("tool_calls") or []:
            text, given = self._call(call)
            name = (call.get("function") or {}).get("name")
            answers.append({"role": "tool", "tool_call_id": call.get("id"), "name": name, "content": text})
            if given is not None:
                return answers, given
        self.invalid += not answers
        return answers or [{"role": "user", "content": NO_CALL}], None

    def _call(self, call: Any) -> tuple[str, str | None]:
        """What a call is answered with, and the answer it gives, if it gives one."""
        assert self.task is not None
        function = call.get("function") or {}
        name, arguments = function.get("name"), _arguments(function.get("arguments"))
        if name == "answer" and isinstance(arguments.get("text"), str):
            return "Thank you.", arguments["text"]
        if name == "read_passage":
            return self._read(arguments.get("number", self._following())), None
        self.invalid += 1
        return "answer takes one text, 'text'." if name == "answer" else f"No tool {name}. {NO_CALL}", None

    def _following(self) -> int:
        """The number of the passage behind the one that was read last."""
        return self.read[-1] + 2 if self.read else 1

    def _read(self, number: Any) -> str:
        """The passage with this number, if it has one."""
        assert self.task is not None
        total = len(self.task.data["passages"])
        if type(number) is int and 1 <= number <= total:
            self.read.append(number - 1)
            return self._passage(number - 1)
        self.invalid += 1
        return f"There are passages 1 to {total}."

    def _passage(self, place: int) -> str:
        assert self.task is not None
        return f"Passage {place + 1}: {self.task.data['passages'][place]}"

    def _seen(self, answers: list[Message], given: str | None) -> Observation:
        """The answers, and at the end the reward; the right answer names the right colour and no other."""
        assert self.task is not None
        self.done = given is not None or self.replies >= self.max_calls
        seen = Observation(answers, done=self.done)
        if self.done:
            needed = set(self.task.data["needed"])
            found = len(needed & set(self.read)) / len(needed)
            won = set(COLOUR.findall((given or "").lower())) == {self.task.data["answer"]}
            seen.reward = 1.0 if won else self.partial * found
            seen.metrics = {"success": float(won), "answered": float(given is not None), "invalid": float(self.invalid)}
            if self.mode != "all":
                seen.metrics |= {"read": float(len(set(self.read))), "needed_read": found}
        return seen


def _arguments(given: Any) -> dict[str, Any]:
    """Arguments as an object, from a JSON text or an object; what is neither names no passage."""
    try:
        found = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"number": None}
