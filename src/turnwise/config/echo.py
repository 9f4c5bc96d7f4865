"""Which tokens of the environment are trained on by cross-entropy, and how much: `[env.echo]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from turnwise.config.section import Section


class RoleEcho(Section):
    """Messages of one role; an empty table is on."""

    alpha: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Weight of the cross-entropy on this role's tokens; below 0 they are unlearnt."""


class ToolEcho(RoleEcho):
    """What tools answer; an empty table is on."""

    tool_names: list[str] | None = None
    """Only answers of these tools; left out, of every tool."""

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        names = self.tool_names
        if names is not None and (not names or any(not name for name in names)):
            raise ValueError(
                f"found tool_names {names!r}; expected names of tools: leave tool_names out to take every tool"
            )
        if names is not None and len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"tool_names hold {twice} more than once; expected each tool once")
        return self


class EchoFilter(Section):
    """A function of your own that says which of the chosen tokens echo; it can only take some away."""

    import_path: Annotated[str, Field(min_length=1)]
    """The function: `package.module:function` or `file.py:function`; called with a trajectory, it returns a list of
    boolean masks, one a turn, each as long as the turn's prompt and completion together."""
    kwargs: dict[str, Any] = {}
    """Its keyword arguments."""


class EchoConfig(Section):
    """Cross-entropy on what the environment wrote, beside the policy gradient. A role that is left out is off."""

    system: RoleEcho | None = None
    user: RoleEcho | None = None
    tool: ToolEcho | None = None
    assistant: RoleEcho | None = None
    filter: EchoFilter | None = None
    initial_prompt: bool = True
    """Whether the first prompt's tokens echo; without it, only what the environment says later."""
    on_error: Literal["drop", "keep"] = "drop"
    """Whether episodes that failed echo. They never have a policy gradient."""
    normalization: Literal["global", "all_tokens", "echo_tokens", "ratio", "none"] = "global"
    """What a token's alpha is divided by. global: the echo tokens of the update. The others are means over rollouts:
    all_tokens divides by the rollout's tokens, echo_tokens by its echo tokens, ratio multiplies that by its sampled
    tokens, none leaves alpha as it is. An alpha that is right for one is wrong for another."""

    @property
    def roles(self) -> dict[str, RoleEcho]:
        """The roles that are on."""
        return {name: table for name, table in self if isinstance(table, RoleEcho)}

    @model_validator(mode="after")
    def _has_a_role(self) -> Self:
        if not self.roles:
            beside = ", also beside a filter, which only takes tokens away" if self.filter else ""
            raise ValueError(
                f"found no role; expected at least one of system, user, tool, assistant{beside}: "
                "tool = { alpha = 0.05 } (to turn echo off, leave [env.echo] out)"
            )
        return self
