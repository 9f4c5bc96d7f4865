"""What a run's TOML and flags may say, validated. Imports neither torch nor transformers."""

from turnwise.config.load import dump, load
from turnwise.config.run import EnvConfig, RunConfig, SamplingConfig

__all__ = ["EnvConfig", "RunConfig", "SamplingConfig", "dump", "load"]
