"""In: a task set. Out: the names of the tools its episodes are played with."""

from __future__ import annotations

from turnwise.envs.tasks import TaskSet


async def tool_names(tasks: TaskSet, seed: int) -> list[str]:
    """What the first training task's environment offers, asked by starting it."""
    env = tasks.environment.new()
    try:
        seen = await env.start(next(tasks.train(seed=seed)))
    finally:
        await env.close()
    return [str(tool.get("function", tool).get("name")) for tool in seen.tools or []]
