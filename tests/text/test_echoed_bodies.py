"""What echoes of conversations with tools, as every renderer writes them: the very texts that tools and users said."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from turnwise.config.echo import EchoConfig
from turnwise.text import Dialogue, reply_ids
from turnwise.trees.echo import Rule, choose
from turnwise.types import EpisodeStop, Task, Trajectory, Turn, TurnStop

NAMES = ("chatml on smollm2", "chatml on plain tags", "chatml on tag tokens", "template that appends", "qwen3")
TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in ("look", "run")
]


def call(n: int, name: str) -> str:
    """A reply that calls one tool."""
    return f"so\n<tool_call>\n{json.dumps({'name': name, 'arguments': {'n': n}})}\n</tool_call>"


def episode(renderer: Any) -> Trajectory:
    """Three turns: the policy looks, then runs; tools answer by the id of the call alone, on bridged turns too."""
    dialogue, turns = Dialogue(renderer, TOOLS), []
    said: list[dict[str, Any]] = [{"role": "system", "content": "You walk."}, {"role": "user", "content": "find it"}]
    for n, name in enumerate(["look", "run", "look"]):
        dialogue.add(said)
        assert n == 0 or dialogue.clean, "bridged"
        prompt, attribution = dialogue.prompt_ids, dialogue.attribution
        ids = np.array(reply_ids(renderer, call(n, name)), np.int32)
        message = dialogue.reply(ids.tolist())
        (made,) = message["tool_calls"]
        said = [{"role": "tool", "tool_call_id": made["id"], "content": f"{name} says wall {n}"}]
        zeros = np.zeros(len(ids))
        turns.append(Turn(prompt, ids, zeros.astype(np.float32), zeros.astype(np.int32), TurnStop.STOP, attribution))
    return Trajectory("toy", Task("toy/0"), 0, 0, 0, turns, stop_reason=EpisodeStop.DONE)


def texts(tokenizer: Any, trajectory: Trajectory, **config: Any) -> list[tuple[str, str, str]]:
    """Role, tool and text of what echoes, run by run."""
    choice, found = choose([trajectory], [0], Rule.of(EchoConfig.model_validate(config))), []
    for n, t in enumerate(trajectory.turns):
        p, ids = choice.picked[0, n], np.concatenate([t.prompt_ids, t.completion_ids])
        for run in np.split(np.arange(len(p.index)), np.flatnonzero(np.diff(p.index) > 1) + 1):
            if len(run):
                text = tokenizer.decode(ids[p.index[run]].tolist())
                found.append((str(p.role[run[0]]), str(p.tool[run[0]]), text.strip()))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_tools_echo_by_the_name_of_the_call_they_answer_also_on_bridged_turns(
    name: str, renderers: Any, tokenizers: Any
) -> None:
    played, tokenizer = episode(renderers[name]), tokenizers[name]
    look, run = ("tool", "look", "look says wall 0"), ("tool", "run", "run says wall 1")
    assert texts(tokenizer, played, tool={}) == [look, run]
    assert texts(tokenizer, played, tool={"tool_names": ["run"]}) == [run]
    assert texts(tokenizer, played, user={}, tool={"tool_names": ["look"]}) == [("user", "", "find it"), look]


@pytest.mark.parametrize("name", NAMES)
def test_an_assistant_s_echo_is_every_sampled_token(name: str, renderers: Any) -> None:
    played = episode(renderers[name])
    choice = choose([played], [0], Rule.of(EchoConfig.model_validate({"assistant": {}})))
    for n, t in enumerate(played.turns):
        sampled = list(range(len(t.prompt_ids), len(t.prompt_ids) + len(t.completion_ids)))
        assert choice.picked[0, n].index.tolist() == choice.picked[0, n].replaced.tolist() == sampled
