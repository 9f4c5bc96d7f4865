"""A taskset of verifiers with a tool: the sum is only right if the tool was asked."""

from vf_adder.taskset import AdderTaskset

__all__ = ["AdderTaskset"]
