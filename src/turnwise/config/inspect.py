"""What `turnwise inspect` may be told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from turnwise.config.section import Section


class InspectConfig(Section):
    """Which part of a run to show."""

    step: Annotated[int, Field(ge=0)] = 0
    """Only this step; 0 is every step, and with --tokens the newest that has them."""
    trajectory: Annotated[int, Field(ge=-1)] = -1
    """Only this trajectory, by its place in the step; -1 is every one, and with --tokens the first."""
    limit: Annotated[int, Field(ge=1)] = 40
    """Breaks to list at most."""
