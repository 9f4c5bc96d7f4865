"""A conversation to the turns in which a model would have had it: each reply is a completion, in the very context that
an episode would give it, so that what is learnt is what will be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from renderers import Renderer

from turnwise.errors import DataError, RenderError
from turnwise.text import Dialogue
from turnwise.text.given import given
from turnwise.text.reply import said_ids
from turnwise.types import Message, Task, Trajectory, Turn


def trajectory(task: Task, renderer: Renderer, longest: int) -> Trajectory:
    """The conversation's turns up to `longest` tokens; the tokens of replies beyond are counted in its metrics.

    A reply with `weight` 0 (as in OpenAI's files) is read and not learnt.
    """
    messages: list[Message] = list(task.data["messages"])
    found = Trajectory("conversations", task, 0, 0, 0, messages=messages, reward=1.0)
    try:
        turns, left = _turns(messages, task.data.get("tools"), renderer, longest)
    except RenderError as error:
        raise DataError(f"conversation {task.key}: {error}") from error
    found.turns, found.metrics = turns, {"over_context": float(left)}
    return found


def _turns(messages: Sequence[Message], tools: Any, renderer: Renderer, longest: int) -> tuple[list[Turn], int]:
    dialogue, turns, left = Dialogue(renderer, tools), list[Turn](), 0
    unread: list[Message] = []
    for message in messages:
        if message["role"] != "assistant":
            unread.append(message)
            continue
        dialogue.add(unread)
        unread = []
        ids = said_ids(renderer, dialogue.messages, message, tools)
        if len(dialogue.prompt_ids) + len(ids) > longest:
            left += len(ids)
        elif message.get("weight", 1) != 0:
            turns.append(given(dialogue, ids, turns))
        dialogue.reply(ids)
        dialogue.messages[-1] = message  # as it was given, so that answers find their calls
    return turns, left
