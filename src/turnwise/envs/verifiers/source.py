"""In: the settings of an environment of verifiers. Out: its tasks under keys that do not depend on their place, and a
fresh environment for each episode."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import verifiers.v1 as vf

from turnwise.envs.verifiers import harness
from turnwise.errors import ConfigError

HARNESS = "turnwise_chat"
sys.modules.setdefault(HARNESS, harness)
"""Verifiers finds a harness as a module of that name."""


class Source:
    """Tasks are read once, as far as they are asked for, and shared by all episodes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.config = _config(settings)
        taskset = vf.load_taskset(self.config.taskset)
        self.endless = not taskset.bounded
        self.reader: Iterator[Any] = iter(taskset)
        self.read: list[Any] = []
        self.keys: list[str] = []
        self.seen: Counter[str] = Counter()

    def env(self) -> Any:
        """An environment for one episode."""
        return vf.load_environment(self.config)

    def task(self, place: int) -> Any | None:
        """The task at a place, None behind the last."""
        while len(self.read) <= place:
            task = next(self.reader, None)
            if task is None:
                return None
            self.read.append(task)
            self.keys.append(self._key(task))
        return self.read[place]

    def _key(self, task: Any) -> str:
        """What a task says of itself, without its place; a second one that is the same is told apart by a number."""
        own = type(task).key is not vf.Task.key
        text = task.key if own else task.with_data(idx=None).key
        self.seen[text] += 1
        return text[:16] if self.seen[text] == 1 else f"{text[:16]}#{self.seen[text]}"


def _config(settings: Mapping[str, Any]) -> Any:
    """The environment's own config; seats that say nothing else run here, in this process."""
    try:
        data = dict(settings)
        kind = vf.env_config_type(data["taskset"]["id"], data.get("id") or "")
        for name, field in kind.model_fields.items():
            if isinstance(field.default, vf.AgentConfig):
                seat = dict(data.get(name) or {})
                seat.setdefault("harness", {"id": HARNESS})
                seat.setdefault("runtime", {"type": "subprocess"})
                data[name] = seat
        return vf.resolve_env_config(data)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"found settings {dict(settings)} that verifiers refuses: {error}; expected an installed package with a "
            "taskset under env.args.taskset, and its environment's own settings under env.args.settings"
        ) from error
