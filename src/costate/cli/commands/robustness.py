"""``costate robustness``: evaluate trained policies under other sensor faults than in training."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from costate._base.checks import printable
from costate._base.counted import counted
from costate._base.errors import CheckpointError, ConfigError, CostateError, RunDirectoryError
from costate._base.files import check_replaceable, output_folder, write_atomically
from costate._base.progress import among
from costate.cli.arguments import read_arguments
from costate.cli.countdown import countdown
from costate.cli.documents import document_on_stdout
from costate.runs.run_directory import CONFIG_FILE, Run, open_run
from costate.trained.robustness import GRID, Degradation, check_grid, measure, sensors_over, table, to_json


@dataclasses.dataclass(frozen=True)
class RobustnessArguments:
    """Evaluate runs without retraining, over a grid of blackout probabilities or of any other sensor setting.

    For example: costate robustness runs/walker --over noise --values 0 0.05 0.1 0.2 --sensors dropout=0
    """

    runs: Annotated[tyro.conf.Positional[tuple[pathlib.Path, ...]], tyro.conf.arg(metavar="RUN…")]
    """Folders of runs, or folders that contain runs."""
    dropouts: tuple[float, ...] = ()
    """Blackout probabilities; 0, 0.25, 0.5, 0.625, 0.75 and 0.875 if none are given."""
    over: str | None = None
    """Another sensor setting to vary, by its name in `costate train --help-all`: noise, delay, burst-length,
    …
    """
    values: tuple[float, ...] = ()
    """Values of the setting that --over names."""
    sensors: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Sensor settings that differ from training, at every value of the grid.

    Join several names for `hide` by +.
    """
    episodes: int = 100
    """Number of episodes at each value."""
    seed: int = 0
    """Seed of episodes and sensor faults. All runs and values use the same episodes."""
    out: pathlib.Path | None = None
    """Folder for robustness.json and robustness.png, or robustness_SETTING.json and .png with --over.

    None for the run's own folder, or the current folder if there are several runs.
    """
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""


ARGUMENTS = RobustnessArguments


def run(arguments: list[str]) -> int:
    """Evaluate runs without retraining, over a grid of sensor faults."""
    from costate.runs.curves import draw_degradation

    parsed = read_arguments("robustness", RobustnessArguments, arguments)
    parameter, grid = _grid(parsed)
    with document_on_stdout(parsed.json) as emit:
        runs = find_runs(parsed.runs)
        where = parsed.out or (runs[0].path if len(runs) == 1 else pathlib.Path())
        # Grids over different settings do not replace each other.
        name = "robustness" if parameter == "dropout" else f"robustness_{parameter}"
        numbers, drawing = where / f"{name}.json", where / f"{name}.png"
        output_folder(where)
        for file in (numbers, drawing):
            check_replaceable(file)
        found = sorted(
            _measure_all(parsed, runs, parameter, grid, where),
            key=lambda each: (each.run.config.task, _variant_of(each.run), each.run.config.seed),
        )
        variants = [_variant_of(degradation.run) for degradation in found]
        document = {"format": 2, "runs": to_json(found, variants)}
        write_atomically(numbers, json.dumps(document, indent=1).encode())
        labels = [
            f"{degradation.run.config.task} {variant}"
            for degradation, variant in zip(found, variants, strict=True)
        ]
        setting = "blackout probability" if parameter == "dropout" else parameter.replace("_", " ")
        picture = draw_degradation(
            setting, [(label, d.values, d.means) for label, d in zip(labels, found, strict=True)]
        )
        write_atomically(drawing, picture)
        print(table(found, labels))
        print(f"written: {numbers}, {drawing}")
        emit(document | {"written": [numbers, drawing]})
    return 0


def _variant_of(run: Run) -> str:
    """Return the name of a run's variant in its sweep; outside of a sweep, its preset."""
    from costate.experiments.collection import read_manifest

    path = run.path.resolve()
    return next(
        (record["variant"] for record in read_manifest(path.parent)["runs"] if record["folder"] == path.name),
        run.variant,
    )


def _measure_all(
    parsed: RobustnessArguments,
    runs: Sequence[Run],
    parameter: str,
    grid: tuple[float, ...],
    where: pathlib.Path,
) -> list[Degradation]:
    """Evaluate all runs that can be evaluated, and print the others.

    Sensor settings are checked for all runs before the first is evaluated.
    """
    changes = sensor_settings(parsed.sensors)
    if parameter in changes:
        raise ConfigError(
            f"--sensors sets {parameter}, but {parameter} is the setting that is varied, over {list(grid)}. "
            "Leave it out of --sensors, or vary another setting with --over."
        )
    runs, refused = _fitting(runs, parameter, grid, changes)
    what = "blackout probabilities" if parameter == "dropout" else f"values of {parameter}"
    print(
        f"{counted(len(runs), 'run')} × {len(grid)} {what} × {counted(parsed.episodes, 'episode')} → {where}",
        flush=True,
    )

    def say(text: str) -> None:
        print(printable(text), flush=True)

    for each, reason in refused:
        say(f"left out: {each.path}: {reason}")
    found: list[Degradation] = []
    with countdown() as tell:
        for number, one in enumerate(runs):
            try:
                part = among(tell, number, len(runs))
                degradation = measure(
                    one,
                    grid,
                    parsed.episodes,
                    parsed.seed,
                    lambda text: say(f"warning: {text}"),
                    say,
                    parameter,
                    changes,
                    part,
                )
                found.append(degradation)
            except CheckpointError as error:
                say(f"left out: {one.path}: {error}")
    if not found:
        raise RunDirectoryError(
            "None of the runs could be evaluated. Give runs with at least one intact checkpoint."
        )
    return found


def _fitting(
    runs: Sequence[Run], parameter: str, grid: tuple[float, ...], changes: dict[str, Any]
) -> tuple[list[Run], list[tuple[Run, ConfigError]]]:
    """Separate the runs whose task allows these sensors from the others, which come with an error.

    Raise the first of these errors if no run remains.
    """
    fitting: list[Run] = []
    refused: list[tuple[Run, ConfigError]] = []
    for run in runs:
        try:
            sensors_over(run.config, grid, parameter, changes)
            fitting.append(run)
        except ConfigError as error:
            refused.append((run, error))
    if not fitting:
        raise refused[0][1]
    return fitting, refused


def _grid(parsed: RobustnessArguments) -> tuple[str, tuple[float, ...]]:
    """Return the setting to vary, and its values."""
    if parsed.over is None:
        if parsed.values:
            raise ConfigError(
                "--values needs --over: name the setting to vary, for example --over noise --values "
                f"{' '.join(f'{v:g}' for v in parsed.values)}. For blackout probabilities use --dropouts."
            )
        return "dropout", check_grid(parsed.dropouts or GRID)
    parameter = parsed.over.replace("-", "_")
    if parsed.dropouts:
        raise ConfigError(
            f"--dropouts and --over {parsed.over} were both given, but only one setting can be varied. Leave "
            f"one of them out. To fix the blackout probability, use --sensors dropout={parsed.dropouts[0]:g}."
        )
    if not parsed.values:
        raise ConfigError(
            f"--over {parsed.over} needs --values: give the values to try, for example --over noise --values "
            "0 0.1 0.2."
        )
    return parameter, check_grid(parsed.values, parameter)


def sensor_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parse sensor settings of the form NAME=VALUE."""
    changes: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(
                f"--sensors takes NAME=VALUE, but {setting!r} has no value. For example: --sensors dropout=0."
            )
        name = name.replace("-", "_")
        changes[name] = value.split("+") if name == "hide" else _number(value)
    return changes


def _number(text: str) -> Any:
    """Parse a number or None; return any other text unchanged."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None if text.lower() == "none" else text


def find_runs(paths: Sequence[pathlib.Path]) -> list[Run]:
    """Return the runs at these paths and in these folders, each once."""
    runs: dict[pathlib.Path, Run] = {}
    for path in paths:
        # Hidden folders are skipped: a run has such a name while it is being replaced.
        found = (file.parent for file in path.glob(f"**/{CONFIG_FILE}")) if path.is_dir() else ()
        inside = sorted(
            folder
            for folder in found
            if not any(part.startswith(".") for part in folder.relative_to(path).parts)
        )
        if not inside:
            open_run(path)  # raises, and says why
        for folder in inside:
            try:
                runs.setdefault(folder.resolve(), open_run(folder))
            except CostateError as error:
                print(printable(f"left out: {folder}: {error}"))
    if not runs:
        where = ", ".join(map(str, paths)) or "no folder"
        raise RunDirectoryError(
            f"No readable run was found in {where}. Give a folder that `costate train` or `costate sweep` "
            "created."
        )
    return list(runs.values())
