"""Echo that was configured and selects nothing is a mistake: after a few batches of it the run stops and says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from turnwise.errors import RunError
from turnwise.trees.echo import Rule
from turnwise.trees.why import REASONS, Why

BATCHES = 3
"""How many batches running may go without a single echo token."""
MEND = {
    Why.ROLE_OFF: "they are of roles that are off; turn one of those on",
    Why.TOOL_NAME: "they answer other tools than env.echo.tool.tool_names lists",
    Why.FILTER: "env.echo.filter took them",
    Why.INITIAL_PROMPT: "they stand in the first prompt; set env.echo.initial_prompt",
    Why.FAILED: "their episodes failed; mend those, or set env.echo.on_error to keep",
    Why.UNKNOWN_BODY: "the renderer cannot tell text from template; choose another renderer",
    Why.SCAFFOLD: "they are the template's, not text",
    Why.FIRST_TOKEN: "nothing stands before them",
    Why.SHARED: "they echoed elsewhere",
    Why.OVER_BUDGET: "they were cut; raise train.row_tokens",
}
"""What each rule means for a run whose echo is silent."""


class Silence:
    """Counts batches without echo."""

    def __init__(self, rule: Rule) -> None:
        self.roles = ", ".join(rule.config.roles)
        self.batches = 0
        self.dropped: Counter[str] = Counter()

    def heed(self, metrics: Mapping[str, float]) -> bool:
        """Whether the batch had echo; raises RunError when it is the last of too many without."""
        if any(n for name, n in metrics.items() if name.startswith("echo/tokens/")):
            self.batches, self.dropped = 0, Counter()
            return True
        self.batches += 1
        self.dropped.update({name: int(n) for name, n in metrics.items() if name.startswith("echo/dropped/")})
        if self.batches == BATCHES:
            raise RunError(f"echo on {self.roles} selected no token in {BATCHES} batches running: {self._why()}")
        return False

    def _why(self) -> str:
        """Which rules took the tokens, the greediest first."""
        taken = sorted((why for why in REASONS if self.dropped[why.key]), key=lambda why: -self.dropped[why.key])
        found = [f"{self.dropped[why.key]} tokens by {why.name.lower()} ({MEND[why]})" for why in taken]
        return "; ".join(found) or "no message but the policy's own was read"
