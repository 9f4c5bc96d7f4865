"""Measurements side by side: variants in turn, each in a process of its own, figures that others can check."""
