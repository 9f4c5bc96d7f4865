"""Environments written for the library verifiers."""

from turnwise.envs.verifiers.env import Verifiers

__all__ = ["Verifiers"]
