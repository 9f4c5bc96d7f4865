"""The policy's side of an episode: a session that holds as much of the dialogue as the engine has seen."""

from __future__ import annotations

from turnwise.agents.compaction import Plan
from turnwise.condense.patience import patient
from turnwise.text import Dialogue
from turnwise.types import Completion, Engine, Sampling, Session


class Voice:
    """Speaks whenever it is asked; a session is opened when there is something to say, and again whenever the history
    was rewritten."""

    def __init__(self, engine: Engine, sampling: Sampling, compaction: Plan | None = None) -> None:
        self.engine = engine
        self.sampling = sampling
        self.compaction = compaction
        self.session: Session | None = None

    async def say(self, dialogue: Dialogue, limit: int, seed: int) -> Completion:
        """Feed the session what it has not read, and sample at most `limit` tokens; `seed` is for a session that opens
        now. An engine without room is asked again."""
        return await patient(lambda: self._step(dialogue, limit, seed))

    async def _step(self, dialogue: Dialogue, limit: int, seed: int) -> Completion:
        new = await self._unread(dialogue, seed)
        assert self.session is not None
        return await self.engine.step(self.session, new, limit)

    async def _unread(self, dialogue: Dialogue, seed: int) -> list[int]:
        """What the session has not seen of the prompt."""
        ids = dialogue.prompt_ids.tolist()
        if self.session is not None:
            held = self.session.ids
            if len(held) < len(ids) and ids[: len(held)] == list(held):
                return list(ids[len(held) :])
            await self.close()
        compaction = None if self.compaction is None else self.compaction.opened(dialogue.attribution)
        self.session = await self.engine.open(ids, self.sampling, seed=seed, compaction=compaction)
        return []

    async def close(self) -> None:
        """Let the session go; what follows opens another."""
        session, self.session = self.session, None
        if session is not None:
            await self.engine.close(session)
