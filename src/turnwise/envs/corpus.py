"""In: a task set and replies to choose from. Out: conversations, so that a tokenizer can learn an environment's text.

Only train-side tasks are played, and the same seed gives the same conversations.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from turnwise.envs.tasks import TaskSet
from turnwise.types import Env, Message, Task


async def corpus(
    tasks: TaskSet, episodes: int, seed: int, replies: Sequence[str] = ("",), max_turns: int = 64
) -> list[list[Message]]:
    """Play `episodes` train-side tasks with random replies, each for at most `max_turns` replies."""
    rng = random.Random(seed)
    return [
        await _play(tasks.environment.new(), task, rng, replies, max_turns)
        for task in islice(tasks.train(seed=seed), episodes)
    ]


async def _play(env: Env, task: Task, rng: random.Random, replies: Sequence[str], max_turns: int) -> list[Message]:
    """The conversation of one episode; it ends with what the environment said last."""
    try:
        seen = await env.start(task)
        messages = list(seen.messages)
        for _ in range(max_turns):
            if seen.done:
                break
            reply: Message = {"role": "assistant", "content": rng.choice(replies)}
            seen = await env.step(reply)
            messages += [reply, *seen.messages]
        return messages
    finally:
        await env.close()
