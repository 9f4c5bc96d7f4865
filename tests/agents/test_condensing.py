"""Episodes whose history is rewritten: what the policy reads, what it may open, and what is kept of it all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tooled import Tooled

from turnwise.agents import Batch, Limits, play, rollout
from turnwise.agents.figures import figures
from turnwise.condense import Condensation, Shared, condensation
from turnwise.config.condense import CondenseConfig
from turnwise.envs.find import Environment
from turnwise.testing import FakeEngine, byte_tokenizer
from turnwise.text import ChatML
from turnwise.types import BreakKind, EpisodeStop, Sampling, Task, Trajectory

CHATML = ChatML(byte_tokenizer())
END = CHATML.end
WIDE = Limits(turns=8, tokens=4000, timeout_s=30.0)
PAD = " and a good deal more that nobody needs to know about it, now or ever again"
SUMMARY = "it was long"


def ids(text: str) -> list[int]:
    found: list[int] = CHATML.tokenizer.encode(text, add_special_tokens=False)
    return found


def decoded(tokens: np.ndarray) -> str:
    return str(CHATML.tokenizer.decode(tokens.tolist()))


def call(name: str, **given: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': given})}\n</tool_call>"


class Speaking(FakeEngine):
    """Says the next reply whatever the session; who asks for a summary is told the same one each time."""

    def __init__(self, *said: str) -> None:
        super().__init__([])
        self.said = iter(said)

    async def step(self, session: Any, new_ids: Sequence[int], max_tokens: int | None = None, **named: Any) -> Any:
        summary = decoded(np.array(session.ids)).startswith("<|im_start|>system\nYou shorten")
        session.replies = iter([[*ids(SUMMARY if summary else next(self.said)), END]])
        return await super().step(session, new_ids, max_tokens, **named)


def plan(engine: FakeEngine, **config: Any) -> Condensation:
    given = {"every_turns": 1, "min_tokens": 8, "type": "drop", **config}
    return condensation(CondenseConfig.model_validate(given), CHATML, engine, CHATML)


def episode(*said: str, limits: Limits = WIDE, first: str = "go", pad: str = PAD, **config: Any) -> Trajectory:
    """Play with tools against an engine that says these replies in turn."""
    engine, empty = Speaking(*said), Trajectory("tooled", Task("t"), 0, 0, 1)
    history = plan(engine, **config).history(Shared(), 5, 6)
    sampling = Sampling(max_tokens=300, stop_ids=(END,))
    env = Tooled([], first=first, pad=pad)
    asyncio.run(play(env, empty, engine, CHATML, sampling, limits, history=history))
    assert engine.open_sessions == 0
    return empty


THREE = [call("echo", text="a"), call("echo", text="b"), call("end")]


def test_what_lies_before_the_last_turns_is_a_block_and_the_prefix_says_condensed():
    trajectory = episode(*THREE)
    first, second, third = trajectory.turns
    assert second.prefix is not None and second.prefix.kind is BreakKind.CLEAN
    assert third.prefix is not None and third.prefix.kind is BreakKind.CONDENSED
    text = decoded(third.prompt_ids)
    assert "<block_1></block_1>" in text and f"a{PAD}" not in text and f"b{PAD}" in text
    assert first.ids.tolist() == second.prompt_ids.tolist()[: len(first.ids)]
    assert trajectory.metrics["condense/condensations"] == 1.0 and trajectory.stop_reason is EpisodeStop.DONE


def test_the_trajectory_s_messages_are_all_that_was_said():
    assert [m["content"] for m in episode(*THREE).messages if m["role"] == "tool"] == [f"a{PAD}", f"b{PAD}", PAD]


def test_a_block_is_opened_by_the_agent_s_own_tool_and_the_environment_knows_nothing_of_it():
    opening = [*THREE[:2], call("extract_condensed", blocks=[1]), call("end")]
    trajectory = episode(*opening, protect_turns=1)
    assert trajectory.messages[6]["content"] == f"block 1:\na{PAD}"
    assert f"block 1:\na{PAD}" in decoded(trajectory.turns[3].prompt_ids)
    assert trajectory.metrics["condense/opened"] == 1.0 and trajectory.stop_reason is EpisodeStop.DONE
    assert "extract_condensed" in decoded(trajectory.turns[0].prompt_ids)
    assert "extract_condensed" not in decoded(episode(*THREE, extract=False).turns[0].prompt_ids)


def test_an_input_that_is_long_from_the_start_is_condensed_before_turn_one():
    trajectory = episode(call("end"), first="A long story. " * 20, every_turns=0, max_input_tokens=100)
    (turn,) = trajectory.turns
    assert "<block_1></block_1>" in decoded(turn.prompt_ids) and turn.prefix is None


def test_a_context_limit_that_ends_episodes_is_met_by_condensing():
    replies = [*(call("echo", text="a") for _ in range(5)), call("end")]
    start = len(episode(call("end")).turns[0].prompt_ids)
    tight = Limits(turns=8, tokens=start + 1000, timeout_s=30.0)
    off = {"every_turns": 0, "max_context_tokens": 4000}
    assert episode(*replies, limits=tight, pad=PAD * 4, **off).stop_reason is EpisodeStop.TOKEN_LIMIT
    held = episode(*replies, limits=tight, pad=PAD * 4, every_turns=0, max_context_tokens=start + 500)
    assert held.stop_reason is EpisodeStop.DONE and held.metrics["condense/condensations"] >= 1.0


def test_a_summary_of_the_policy_is_a_turn_of_its_own_before_the_one_that_reads_it():
    trajectory = episode(*THREE, type="model")
    assert [t.agent for t in trajectory.turns] == ["main", "main", "summary", "main"]
    summary, after = trajectory.turns[2:]
    assert decoded(summary.completion_ids) == f"{SUMMARY}<|im_end|>" and f"a{PAD}" in decoded(summary.prompt_ids)
    assert f"<block_1>{SUMMARY}</block_1>" in decoded(after.prompt_ids)
    kinds = [t.prefix.kind for t in trajectory.turns[1:] if t.prefix]
    assert kinds == [BreakKind.CLEAN, BreakKind.OTHER_AGENT, BreakKind.CONDENSED]
    assert [t.reward for t in trajectory.turns] == [0.0, 0.0, 0.0, 1.0]
    assert (trajectory.metrics["condense/summaries"], trajectory.metrics["condense/summary_tokens"]) == (1.0, 12.0)
    assert figures([trajectory])["episode/turns"] == 3.0


def test_summaries_are_no_turns_for_the_turn_limit():
    trajectory = episode(*THREE, type="model", limits=Limits(turns=3, tokens=4000, timeout_s=30.0))
    assert trajectory.stop_reason is EpisodeStop.DONE


def test_whole_turns_leave_no_tool_message_without_its_call():
    trajectory = episode(*THREE, chunk={"type": "turns"})
    text = decoded(trajectory.turns[2].prompt_ids)
    assert "go\n<block_1></block_1>" in text and text.count("<|im_start|>tool") == 1


def test_a_text_that_cannot_become_tokens_is_the_environment_s_failure():
    assert episode(call("end"), first="\ud800" * 30, max_input_tokens=1).stop_reason is EpisodeStop.ENV_ERROR


@pytest.mark.parametrize(("share", "steps"), [("group", 1), ("episode", 3)])
def test_siblings_share_what_is_condensed_and_each_keeps_the_summary_as_its_turn(share, steps):
    engine = Speaking(*(call("end") for _ in range(3)))
    found = plan(engine, type="model", every_turns=0, max_input_tokens=50, share=share)
    env = Environment("tooled", Tooled, {"seen": [], "first": "A long story. " * 15})
    sampling = Sampling(max_tokens=300, stop_ids=(END,))
    batch = Batch([Task("t")], 3, seed=0, step=0)
    played = asyncio.run(rollout(batch, env, engine, CHATML, sampling, WIDE, condense=found))
    assert [[t.agent for t in p.turns] for p in played] == [["summary", "main"]] * 3
    assert len(engine.read) == 3 + steps
    assert sum(p.metrics["condense/shared"] for p in played) == 3 - steps


def test_a_cancelled_episode_says_so_and_leaves_nothing_open():
    async def run() -> Trajectory:
        engine, empty = Speaking(call("end")), Trajectory("tooled", Task("t"), 0, 0, 1)

        class Hung(Tooled):
            async def step(self, message: Any) -> Any:
                await asyncio.Event().wait()

        task = asyncio.create_task(play(Hung([]), empty, engine, CHATML, Sampling(stop_ids=(END,)), WIDE))
        while not empty.turns:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.open_sessions == 0
        return empty

    trajectory = asyncio.run(run())
    assert (trajectory.stop_reason, trajectory.error) == (EpisodeStop.CANCELLED, "cancelled")
    assert len(trajectory.turns) == 1
