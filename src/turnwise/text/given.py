"""A reply that nobody sampled, as the turn in which a model would have sampled it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.text.breaks import explain
from turnwise.text.dialogue import Dialogue
from turnwise.types import Turn, TurnStop


def given(dialogue: Dialogue, ids: Sequence[int], earlier: Sequence[Turn]) -> Turn:
    """The latest prompt and this reply to it; its log-probabilities are 0."""
    said = np.array(ids, np.int32)
    turn = Turn(
        prompt_ids=dialogue.prompt_ids,
        completion_ids=said,
        logprobs=np.zeros(len(said), np.float32),
        policy_versions=np.zeros(len(said), np.int32),
        stop_reason=TurnStop.STOP,
        attribution=dialogue.attribution,
    )
    turn.prefix = explain(turn, earlier, dialogue.messages, dialogue.renderer)
    return turn
