"""`turnwise serve MODEL --port 8000`: parse and check first, import torch after."""

from __future__ import annotations

import os

from turnwise.cli.page import page, show
from turnwise.config import load
from turnwise.config.serve import ServeConfig
from turnwise.errors import ConfigError

USAGE = "turnwise serve MODEL [@ serve.toml] [--key value ...]"
ABOUT = """Serves a model: tokens in, tokens out (the route that renderers and verifiers speak), OpenAI's chat and
completions, conversations whose cache stays and can be compacted. GET /openapi.json describes every route. SIGTERM or
Ctrl-C lets running requests finish; a second Ctrl-C does not."""


def run(args: list[str]) -> int:
    """Parse, check, load the model, serve until told to stop."""
    if {"-h", "--help"} & set(args):
        show(page(USAGE, ABOUT, {}, ServeConfig))
        return 0
    config = load(positional(args, "model"), ServeConfig)
    if not config.model:
        raise ConfigError("found no MODEL; expected one, as in `turnwise serve smollm2` (tiny has random weights)")
    if not config.admin_token:
        config = config.model_copy(update={"admin_token": os.environ.get("TURNWISE_ADMIN_TOKEN", "")})
    return _serve(config)


def positional(args: list[str], key: str) -> list[str]:
    """A first word that is no flag stands for `--key WORD`."""
    if not args or args[0].startswith(("-", "@")):
        return args
    if any(word == f"--{key}" or word.startswith(f"--{key}=") for word in args):
        raise ConfigError(f"found {args[0]!r} and --{key}; expected one of them")
    return [f"--{key}", *args]


def _serve(config: ServeConfig) -> int:
    """Everything from here on may import torch."""
    from turnwise.serve.run import run as serve

    return serve(config)
