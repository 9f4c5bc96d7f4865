"""The base of every config class: unknown keys are refused, and a table of free keys keeps the types it was given."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator
from pydantic_config import BaseConfig


class Section(BaseConfig):
    """One section of a config."""

    @model_validator(mode="before")
    @classmethod
    def _coerce_dict_str_values(cls, data: Any) -> Any:
        """Leave free tables alone: the base class would turn {"code": "007"} into {"code": 7.0}. Flags come typed."""
        return data
