"""Everything Turnwise raises on purpose.

TurnwiseError
  ConfigError       a config or flag: what was found, what was expected, how to mend it
  ModelError        a model, tokenizer or template that cannot be used exactly
  RenderError       messages that cannot become tokens
  EngineError       a request an engine cannot serve
    EngineFull      no room for it now: try again later
    TooLong         no room for it ever: it is longer than the model or the cache can hold
    SessionGone     its session is closed, or another engine's
    EngineDown      the server behind the engine cannot be reached or fails
  ToolError         a tool cannot do what it was asked; the model is told
  RunError          a run folder that cannot be read, resumed or written
  DataError         turns, rows or files whose parts do not fit together
"""


class TurnwiseError(Exception):
    """Base of all errors raised on purpose; its text is meant for the user."""


class ConfigError(TurnwiseError):
    """A config or a flag is wrong."""


class ModelError(TurnwiseError):
    """A model, tokenizer or template cannot be used exactly."""


class RenderError(TurnwiseError):
    """Messages cannot become tokens."""


class EngineError(TurnwiseError):
    """An engine cannot serve a request."""


class EngineFull(EngineError):
    """An engine has no room for a request now; the same request may succeed later."""


class TooLong(EngineError):
    """A request is longer than the model or the whole cache can hold."""


class SessionGone(EngineError):
    """An engine does not hold the session of a request."""


class EngineDown(EngineError):
    """The server behind an engine cannot be reached, or fails."""


class ToolError(TurnwiseError):
    """Raised by an environment's step: its text is told to the model, and the episode goes on."""


class RunError(TurnwiseError):
    """A run folder cannot be read, resumed or written."""


class DataError(TurnwiseError):
    """Parts of the data do not fit together."""
