"""The nouns every stage passes to the next, and the protocols Engine, Session and Env.

Imports the standard library and numpy only, so anything may import it. Index suffixes of arrays: P prompt tokens,
C completion tokens.
"""

from turnwise.types.arrays import Floats, Ids, Names, shared
from turnwise.types.chat import ECHO_ROLES, Message, Tool
from turnwise.types.compaction import Budget, Compaction, Event, Notice, Rule, Segments, Settings, Strike, Turns, count
from turnwise.types.entries import Echo, Entries, TurnPath
from turnwise.types.episode import EpisodeStop, Observation, Task, Trajectory
from turnwise.types.protocols import Engine, Env, Session
from turnwise.types.sampling import Listener, Sampled, Sampling, Support, Top, TurnStop
from turnwise.types.turn import Attribution, Break, BreakKind, Completion, Turn

__all__ = [
    "ECHO_ROLES",
    "Attribution",
    "Break",
    "BreakKind",
    "Budget",
    "Compaction",
    "Completion",
    "Echo",
    "Engine",
    "Entries",
    "Env",
    "EpisodeStop",
    "Event",
    "Floats",
    "Ids",
    "Listener",
    "Message",
    "Names",
    "Notice",
    "Observation",
    "Rule",
    "Sampled",
    "Sampling",
    "Segments",
    "Session",
    "Settings",
    "Strike",
    "Support",
    "Task",
    "Tool",
    "Top",
    "Trajectory",
    "Turn",
    "TurnPath",
    "TurnStop",
    "Turns",
    "count",
    "shared",
]
