"""``costate robustness``: trained policies under more and fewer blackouts than they were trained with."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Annotated

import tyro

from costate._errors import CheckpointError, CostateError, RunDirectoryError
from costate._files import explained_errors, write_atomically
from costate.config import variant_name
from costate.robustness import GRID, Degradation, check_grid
from costate.run_directory import CONFIG_FILE, Run, open_run


@dataclasses.dataclass(frozen=True)
class RobustnessArguments:
    """Evaluate runs, never retrained, over a grid of blackout probabilities."""

    runs: Annotated[tyro.conf.Positional[tuple[pathlib.Path, ...]], tyro.conf.arg(metavar="RUN…")]
    """Folders of runs, or folders that hold runs."""
    dropouts: tuple[float, ...] = GRID
    """Blackout probabilities."""
    episodes: int = 100
    """Episodes at each of them."""
    seed: int = 0
    """Seed of episodes and sensor faults; the same episodes for every run and probability."""
    out: pathlib.Path | None = None
    """Folder for robustness.json and robustness.png; None for the run itself, or the current folder for several."""


def run(arguments: list[str]) -> int:
    """Evaluate runs over a grid of blackout probabilities."""
    from costate.curves import draw_degradation
    from costate.robustness import measure, table, to_json

    parsed = tyro.cli(RobustnessArguments, prog="costate robustness", args=arguments)
    grid = check_grid(parsed.dropouts)
    runs = find_runs(parsed.runs)
    where = parsed.out or (runs[0].path if len(runs) == 1 else pathlib.Path())
    print(f"{len(runs)} run{'s' if len(runs) > 1 else ''} × {len(grid)} blackout probabilities × {parsed.episodes} episodes → {where}", flush=True)

    def say(text: str) -> None:
        print(text, flush=True)

    found: list[Degradation] = []
    for one in runs:
        try:
            found.append(measure(one, grid, parsed.episodes, parsed.seed, lambda text: say(f"warning: {text}"), say))
        except CheckpointError as error:
            say(f"left out: {one.path}: {error}")
    if not found:
        raise RunDirectoryError("None of the runs could be evaluated. Give runs with at least one whole checkpoint.")
    with explained_errors(where):
        where.mkdir(parents=True, exist_ok=True)
    write_atomically(where / "robustness.json", json.dumps({"format": 1, "runs": to_json(found)}, indent=1).encode())
    labels = [f"{d.run.config.task} {variant_name(d.run.config)}" for d in found]
    write_atomically(where / "robustness.png", draw_degradation([(label, d.dropouts, d.means) for label, d in zip(labels, found, strict=True)]))
    print(table(found))
    print(f"written: {where / 'robustness.json'}, {where / 'robustness.png'}")
    return 0


def find_runs(paths: Sequence[pathlib.Path]) -> list[Run]:
    """The runs themselves, and those in folders that are none."""
    runs: list[Run] = []
    for path in paths:
        inside = sorted(file.parent for file in path.glob(f"**/{CONFIG_FILE}")) if path.is_dir() else []
        if not inside:
            open_run(path)  # says what is wrong with it
        for folder in inside:
            try:
                runs.append(open_run(folder))
            except CostateError as error:
                print(f"left out: {folder}: {error}")
    if not runs:
        raise RunDirectoryError("No run was given. Give at least one folder that `costate train` or `costate sweep` made.")
    return runs
