"""Robustness: the returns of a trained policy under more or other sensor faults than in training."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from costate._base.errors import ConfigError
from costate._base.plain_data import decode, encode
from costate._base.progress import Tell, among, named, nobody
from costate._base.registry import nearest
from costate.config.run_config import RunConfig
from costate.envs.sensors import MODIFIERS, PROBABILITIES, SensorConfig, drop_ineffective, has_effect
from costate.runs.run_directory import Run
from costate.trained.evaluation import Evaluation, evaluate, evaluated_sensors, find_evaluation, sensors_at

GRID = (0.0, 0.25, 0.5, 0.625, 0.75, 0.875)
"""The default grid of blackout probabilities."""
PARAMETERS = tuple(
    field.name
    for field in dataclasses.fields(SensorConfig)
    if field.name not in ("dark", "hide", "mask_input")
)
"""Sensor settings that are numbers, of which a grid can be made."""
AS_TRAINED: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Degradation:
    """A run's returns over a grid of one sensor setting, from one checkpoint and the same initial states."""

    run: Run
    evaluations: tuple[Evaluation, ...]
    parameter: str = "dropout"

    @property
    def values(self) -> np.ndarray:
        """The grid of the setting."""
        default = getattr(SensorConfig, self.parameter)
        return np.array(
            [
                e.dropout if self.parameter == "dropout" else e.faults.get(self.parameter, default)
                for e in self.evaluations
            ],
            float,
        )

    @property
    def means(self) -> np.ndarray:
        return np.array([evaluation.mean for evaluation in self.evaluations])

    @property
    def area(self) -> float:
        """Mean return over the grid: the area under the degradation curve, divided by its width."""
        return area_under(self.values, self.means)


def area_under(x: np.ndarray, y: np.ndarray) -> float:
    """Return the mean height of a curve by trapezoids.

    Unlike an area it does not grow with the range of x.
    """
    if len(x) < 2:
        return float(y[0])
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def check_grid(values: Sequence[float], parameter: str = "dropout") -> tuple[float, ...]:
    """Return the grid in ascending order; raise if it is empty, repeats a value or has an invalid one."""
    if parameter not in PARAMETERS:
        raise ConfigError(
            f"There is no sensor setting {parameter!r} to make a grid of. {nearest(parameter, PARAMETERS)}"
        )
    probability = parameter in PROBABILITIES
    if (
        not values
        or len(set(values)) < len(values)
        or (probability and not all(0.0 <= p <= 1.0 for p in values))
    ):
        raise ConfigError(
            f"The values of {parameter} are {list(values)}, but they must be different numbers"
            f"{' between 0 and 1' * probability}, at least one. "
            f"The default grid of blackout probabilities is {' '.join(f'{p:g}' for p in GRID)}."
        )
    for value in values:
        _varied(SensorConfig(), parameter, value)  # raises if the value is invalid
    return tuple(sorted(values))


def _varied(sensors: SensorConfig, parameter: str, value: float) -> SensorConfig:
    """Return the sensors with another value of one setting."""
    whole = isinstance(getattr(SensorConfig, parameter), int)
    if whole and not float(value).is_integer():
        raise ConfigError(f"{parameter} is {value:g}, but it is a number of steps. Give whole numbers.")
    change: dict[str, Any] = {parameter: int(value) if whole else float(value)}
    return dataclasses.replace(sensors, **change)


def sensors_over(
    config: RunConfig,
    values: Sequence[float],
    parameter: str = "dropout",
    changes: Mapping[str, Any] = AS_TRAINED,
    warn: Callable[[str], None] = lambda text: None,
) -> tuple[SensorConfig, ...]:
    """Return the sensors for an evaluation at every value of a setting; raise if any is invalid.

    The other settings are those of training, except for ``changes``. A change that has no effect at some
    value is dropped there. A change that has no effect at any value is an error.
    """
    trained = config.sensors.mask_input
    if changes.get("mask_input", trained) != trained:
        raise ConfigError(
            f"mask_input is {changes['mask_input']}, but the policy was trained with {trained}, "
            "which its inputs depend on. Leave mask_input out."
        )
    # Validated only with the value in it, which may resolve a conflict between the changes and training.
    base = decode(SensorConfig, encode(config.sensors) | dict(changes), "sensors")
    grid = [_varied(base, parameter, value) for value in values]
    useful = [
        name for name in MODIFIERS if name != parameter and any(has_effect(sensors, name) for sensors in grid)
    ]

    def fitted(value: float, sensors: SensorConfig) -> SensorConfig:
        return evaluated_sensors(
            config,
            drop_ineffective(sensors, useful),
            (parameter, *changes),
            lambda text: warn(f"{_place(parameter, value)}: {text}"),
        )

    return tuple(map(fitted, values, grid))


def _place(parameter: str, value: float) -> str:
    return f"at {value:.4g} {NAMES.get(parameter, parameter)}"


NAMES = {"dropout": "blackout"}


def is_evaluated(run: Run, dropout: float, episodes: int) -> bool:
    """Return whether the newest checkpoint has been evaluated at a blackout probability.

    All other settings of the sensors are those of training.
    """
    return find_evaluation(run, sensors_at(run.config, dropout), episodes) is not None


def measure(
    run: Run,
    values: Sequence[float],
    episodes: int,
    seed: int,
    warn: Callable[[str], None],
    say: Callable[[str], None] = lambda text: None,
    parameter: str = "dropout",
    changes: Mapping[str, Any] = AS_TRAINED,
    tell: Tell = nobody,
) -> Degradation:
    """Evaluate the newest checkpoint of a run at every value of a sensor setting.

    Evaluations made before are read back. The other settings are those of training, except for ``changes``.
    """
    results = []
    grid = check_grid(values, parameter)
    # Check all of them before the first is compiled and played.
    sensors = sensors_over(run.config, grid, parameter, changes, lambda text: warn(f"{run.path} {text}"))
    for number, (value, chosen) in enumerate(zip(grid, sensors, strict=True)):
        where = f"{run.path} {_place(parameter, value)}"
        known = find_evaluation(run, chosen, episodes, seed)
        part = named(among(tell, number, len(grid)), where)
        result = known or evaluate(run, sensors=chosen, episodes=episodes, seed=seed, warn=warn, tell=part)[0]
        say(f"{where}: {result.mean:.1f}{' (evaluated before)' if known else ''}")
        results.append(result)
    return Degradation(run, tuple(results), parameter)


def table(degradations: Sequence[Degradation], labels: Sequence[str]) -> str:
    """Format mean returns: a line for each run, with the area under its curve.

    Finished runs that differ only in their seed also get lines with their mean and standard deviation.
    """
    names = [
        f"{label} seed {degradation.run.config.seed}"
        for label, degradation in zip(labels, degradations, strict=True)
    ]
    width = max(map(len, (*names, *(f"{label} mean" for label in labels))))
    header = " ".join(f"{p:>8.4g}" for p in degradations[0].values)
    lines = [f"{'run':{width}} {header} {'area':>8} {'steps':>12}  folder"]
    for name, degradation in zip(names, degradations, strict=True):
        lines.append(
            f"{name:{width}} {_numbers(_heights(degradation))} {_steps(degradation):>12}"
            f"  {degradation.run.path}"
        )
    for label, seeds in _seeds_by_config(degradations, labels):
        heights = np.array([_heights(degradation) for degradation in seeds])
        lines.append(
            f"{f'{label} mean':{width}} {_numbers(heights.mean(axis=0))} {_steps(seeds[0]):>12}"
            f"  {len(seeds)} seeds"
        )
        lines.append(f"{f'{label} ±':{width}} {_numbers(heights.std(axis=0, ddof=1))}")
    return "\n".join(lines)


def _seeds_by_config(
    degradations: Sequence[Degradation], labels: Sequence[str]
) -> list[tuple[str, list[Degradation]]]:
    """Return the finished runs of every config with several seeds, under its label."""
    found: dict[tuple[str, RunConfig], dict[int, Degradation]] = {}
    for degradation, label in zip(degradations, labels, strict=True):
        config = degradation.run.config
        if degradation.evaluations[0].env_steps == config.final_steps:
            found.setdefault((label, dataclasses.replace(config, seed=0)), {}).setdefault(
                config.seed, degradation
            )
    return [(label, list(seeds.values())) for (label, _), seeds in found.items() if len(seeds) > 1]


def _heights(degradation: Degradation) -> np.ndarray:
    """Return mean returns, then the area under them; NaN for the area of a single value."""
    return np.append(degradation.means, degradation.area if len(degradation.means) > 1 else np.nan)


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{value:8.1f}" if np.isfinite(value) else f"{'–':>8}" for value in values)


def _steps(degradation: Degradation) -> str:
    """Format the training steps of the checkpoint, and mark a run that has not used up its budget."""
    config, steps = degradation.run.config, degradation.evaluations[0].env_steps
    return f"{steps:,}" if steps == config.final_steps else f"{steps:,} (unfinished)"


def to_json(degradations: Sequence[Degradation], variants: Sequence[str]) -> list[dict[str, object]]:
    return [
        {
            "run": pathlib.Path(degradation.run.path).name,
            "task": degradation.run.config.task,
            "variant": variant,
            "seed": degradation.run.config.seed,
            "env_steps": degradation.evaluations[0].env_steps,
            "parameter": degradation.parameter,
            "values": degradation.values.tolist(),
            "means": degradation.means.tolist(),
            "medians": [evaluation.median for evaluation in degradation.evaluations],
            "area": degradation.area,
        }
        for degradation, variant in zip(degradations, variants, strict=True)
    ]
