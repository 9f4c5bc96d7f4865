"""`turnwise inspect RUN`: a run in the terminal, its breaks one by one, or the tokens of one trajectory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.cli.json_path import json_path
from turnwise.cli.page import page, show
from turnwise.config import load
from turnwise.config.inspect import InspectConfig
from turnwise.errors import ConfigError, RunError

if TYPE_CHECKING:
    import pyarrow as pa

    from turnwise.runs import RunFolder

VIEWS = {
    "--breaks": "list every turn whose prompt does not begin with what stood before it, with the text around the break",
    "--tokens": "list the tokens of one trajectory with all their numbers",
}
OPTIONS = {**VIEWS, "--json PATH": "also write what is shown to a file"}
USAGE = "turnwise inspect RUN [--breaks | --tokens] [--key value ...]"
ABOUT = """Shows the run in the folder RUN (such as runs/demo): what it is, its last numbers, why episodes ended, what
became of every sampled token, how prefixes broke, and warnings. What the trainer found for a token is known on steps
that were exported: train with `train.export_tokens`."""


def run(args: list[str]) -> int:
    """Find what is asked for, show it, and write it to a file if asked."""
    if {"-h", "--help"} & set(args):
        show(page(USAGE, ABOUT, OPTIONS, InspectConfig))
        return 0
    target, words = json_path(args)
    views = [word for word in words if word in VIEWS]
    words = [word for word in words if word not in VIEWS]
    if not words or words[0].startswith(("-", "@")):
        raise ConfigError("found no run to inspect; expected its folder first: `turnwise inspect runs/demo`")
    if len(views) > 1:
        raise ConfigError(f"found {' and '.join(views)}; expected one of them")
    shown = _show(Path(words[0]), views, load(words[1:], InspectConfig))
    if target:
        _write(target, shown)
    return 0


def _show(place: Path, views: list[str], config: InspectConfig) -> Any:
    from turnwise.cli import screens
    from turnwise.runs import RunFolder, summary

    folder = RunFolder.open(place)
    if not views:
        found = summary.summary(folder)
        screens.summary(found)
        return found
    if views == ["--breaks"]:
        broken, counts = _breaks(folder, config)
        screens.breaks(broken, counts, config.limit)
        return {"counts": counts, "breaks": [screens.plain(b) for b in broken]}
    table = _tokens(folder, config)
    screens.tokens(table)
    return table.to_pylist()


def _breaks(folder: RunFolder, config: InspectConfig) -> tuple[list[Any], dict[str, int]]:
    """Breaks of the steps and the trajectory asked for, and turns by kind in those steps."""
    from turnwise.runs import breaks
    from turnwise.runs.folder import by_step
    from turnwise.types import BreakKind

    files = by_step(folder.rollouts)
    asked = {config.step: _of(files, config.step, folder.rollouts)} if config.step or not files else files
    read = [breaks.read(path, step) for step, path in asked.items()]
    kinds = {kind: sum(counts[kind] for _, counts in read) for kind in BreakKind}
    found = [b for own, _ in read for b in own if config.trajectory in (-1, b.trajectory)]
    return found, {kind.value: n for kind, n in kinds.items()}


def _tokens(folder: RunFolder, config: InspectConfig) -> pa.Table:
    """From the export where there is one, else from the rollouts, without what only the trainer knows."""
    from turnwise.runs import rollouts, tokens
    from turnwise.runs.folder import by_step

    exported, played = by_step(folder.token_tables), by_step(folder.rollouts)
    step = config.step or max(exported or played, default=0)
    number = max(config.trajectory, 0)
    if step in exported:
        found = tokens.load(exported[step], number)
        if len(found):
            return found
    trajectories = rollouts.load(_of(played, step, folder.rollouts))
    if number >= len(trajectories):
        raise RunError(
            f"found {len(trajectories)} trajectories in step {step}, expected one numbered {number}; "
            f"choose --trajectory 0 to {len(trajectories) - 1}"
        )
    return tokens.table(step, {number: trajectories[number]}, text=tokens.reader(folder))


def _of(files: dict[int, Path], step: int, folder: Path) -> Path:
    if not files:
        raise RunError(
            f"found no rollouts in {folder}; expected a file a step: the run has not finished a step yet, or it "
            "is supervised and plays none"
        )
    if step not in files:
        raise RunError(
            f"found no rollouts of step {step} in {folder}; expected one of steps {min(files)} to {max(files)}"
        )
    return files[step]


def _write(path: Path, shown: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(shown, indent=1) + "\n", encoding="utf-8")
