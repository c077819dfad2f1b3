"""``costate robustness``: trained policies under more, fewer or other sensor faults than they were trained with."""

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
    """Evaluate runs, never retrained, over a grid of blackout probabilities, or of any other setting of the sensors.

    For example: costate robustness runs/walker --over noise --values 0 0.05 0.1 0.2 --sensors dropout=0
    """

    runs: Annotated[tyro.conf.Positional[tuple[pathlib.Path, ...]], tyro.conf.arg(metavar="RUN…")]
    """Folders of runs, or folders that hold runs."""
    dropouts: tuple[float, ...] = ()
    """Blackout probabilities; 0, 0.25, 0.5, 0.625, 0.75 and 0.875 if none are given."""
    over: str | None = None
    """Another setting of the sensors to vary, as `costate train --help-all` names them: noise, delay, burst-length, …"""
    values: tuple[float, ...] = ()
    """Values of it."""
    sensors: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Settings of the sensors that are to differ from training at every value; several names for `hide` are joined by +."""
    episodes: int = 100
    """Episodes at each value."""
    seed: int = 0
    """Seed of episodes and sensor faults; the same episodes for every run and value."""
    out: pathlib.Path | None = None
    """Folder for robustness.json and robustness.png (robustness_SETTING.json and .png for another setting); None for the run itself, or the current
    folder for several."""
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""


ARGUMENTS = RobustnessArguments


def run(arguments: list[str]) -> int:
    """Evaluate runs over a grid of sensor faults."""
    from costate.runs.curves import draw_degradation

    parsed = read_arguments("robustness", RobustnessArguments, arguments)
    parameter, grid = _grid(parsed)
    with document_on_stdout(parsed.json) as give:
        runs = find_runs(parsed.runs)
        where = parsed.out or (runs[0].path if len(runs) == 1 else pathlib.Path())
        # A grid over one setting does not replace that over another.
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
        give(document | {"written": [numbers, drawing]})
    return 0


def _variant_of(run: Run) -> str:
    """The name of a run's variant in the sweep that it is part of, or else its preset."""
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
    """All runs that can be evaluated; the others are named. Whether the sensors fit is known of all before the first is played."""
    changes = sensor_settings(parsed.sensors)
    if parameter in changes:
        raise ConfigError(
            f"sensors gives {parameter}, but {parameter} is to be varied through {list(grid)}. Leave it out of --sensors, or vary another setting "
            f"with --over."
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
            "None of the runs could be evaluated. Give runs with at least one whole checkpoint."
        )
    return found


def _fitting(
    runs: Sequence[Run], parameter: str, grid: tuple[float, ...], changes: dict[str, Any]
) -> tuple[list[Run], list[tuple[Run, ConfigError]]]:
    """Runs whose task allows all of these sensors, and the others with what is wrong; raises what is wrong with the first if it allows none."""
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
    """What is varied, and through which values."""
    if parsed.over is None:
        if parsed.values:
            raise ConfigError(
                f"--values needs --over: name the setting to vary, for example --over noise --values {' '.join(f'{v:g}' for v in parsed.values)}. "
                f"Blackout probabilities are given by --dropouts."
            )
        return "dropout", check_grid(parsed.dropouts or GRID)
    parameter = parsed.over.replace("-", "_")
    if parsed.dropouts:
        raise ConfigError(
            f"--dropouts and --over {parsed.over} were both given, but only one setting can be varied. Leave one of them out; to use one blackout "
            f"probability throughout, give --sensors dropout={parsed.dropouts[0]:g}."
        )
    if not parsed.values:
        raise ConfigError(
            f"--over {parsed.over} needs --values: give the values to try, for example --over noise --values 0 0.1 0.2."
        )
    return parameter, check_grid(parsed.values, parameter)


def sensor_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Settings of the sensors that are given as NAME=VALUE."""
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
    """A number where it is one, or nothing where it says so."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None if text.lower() == "none" else text


def find_runs(paths: Sequence[pathlib.Path]) -> list[Run]:
    """The runs themselves, and those in folders that are none; each once."""
    runs: dict[pathlib.Path, Run] = {}
    for path in paths:
        # Not in hidden folders: they are what a run is called while it is replaced.
        found = (file.parent for file in path.glob(f"**/{CONFIG_FILE}")) if path.is_dir() else ()
        inside = sorted(
            folder
            for folder in found
            if not any(part.startswith(".") for part in folder.relative_to(path).parts)
        )
        if not inside:
            open_run(path)  # says what is wrong with it
        for folder in inside:
            try:
                runs.setdefault(folder.resolve(), open_run(folder))
            except CostateError as error:
                print(printable(f"left out: {folder}: {error}"))
    if not runs:
        where = ", ".join(map(str, paths)) or "no folder"
        raise RunDirectoryError(
            f"There is no run that can be read in what was given: {where}. Give a folder that `costate train` or `costate sweep` made."
        )
    return list(runs.values())
