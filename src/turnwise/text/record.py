"""A prompt and what was sampled from it to the turn that a trajectory keeps."""

from __future__ import annotations

from turnwise.text.dialogue import Dialogue
from turnwise.types import Completion, Turn


def record(dialogue: Dialogue, completion: Completion, temperature: float, agent: str = "main") -> Turn:
    """Take it before the reply is added: the dialogue's prompt is then what was read."""
    return Turn(
        prompt_ids=dialogue.prompt_ids,
        completion_ids=completion.ids,
        logprobs=completion.logprobs,
        policy_versions=completion.policy_versions,
        stop_reason=completion.stop_reason,
        attribution=dialogue.attribution,
        support=completion.support,
        events=completion.events,
        temperature=temperature,
        agent=agent,
        injected=completion.injected,
    )
