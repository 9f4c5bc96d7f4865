"""The mathematics of compaction on plain tensors: which keys stay, what their values become, and when to fire."""
