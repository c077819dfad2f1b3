"""Robustness: one trained policy under more and fewer blackouts than it was trained with, and what is left of its return."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from costate._errors import ConfigError
from costate.evaluation import Evaluation, evaluate, find_evaluation
from costate.run_directory import Run

GRID = (0.0, 0.25, 0.5, 0.625, 0.75, 0.875)


@dataclasses.dataclass(frozen=True)
class Degradation:
    """A run's returns over a grid of blackout probabilities, all from one checkpoint and from the same episodes' starts."""

    run: Run
    evaluations: tuple[Evaluation, ...]

    @property
    def dropouts(self) -> np.ndarray:
        return np.array([evaluation.dropout for evaluation in self.evaluations])

    @property
    def means(self) -> np.ndarray:
        return np.array([evaluation.mean for evaluation in self.evaluations])

    @property
    def area(self) -> float:
        """Mean return over the range of probabilities: the area under the degradation curve by trapezoids, divided by its width."""
        return area_under(self.dropouts, self.means)


def area_under(x: np.ndarray, y: np.ndarray) -> float:
    """Mean height of a curve over its range of x, by trapezoids; unlike an area it does not grow with the range."""
    if len(x) < 2:
        return float(y[0])
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def check_grid(dropouts: Sequence[float]) -> tuple[float, ...]:
    """The grid in rising order; raises if it is empty, repeats itself or holds anything but probabilities."""
    wrong = [p for p in dropouts if not 0.0 <= p <= 1.0]
    if not dropouts or wrong or len(set(dropouts)) < len(dropouts):
        raise ConfigError(
            f"The blackout probabilities are {list(dropouts)}, but they must be different numbers between 0 and 1, at least one. "
            f"The usual grid is {' '.join(f'{p:g}' for p in GRID)}."
        )
    return tuple(sorted(dropouts))


def measure(
    run: Run, dropouts: Sequence[float], episodes: int, seed: int, warn: Callable[[str], None], say: Callable[[str], None] = lambda text: None
) -> Degradation:
    """Evaluate the newest checkpoint of a run at every probability; what has been evaluated before is read back."""
    results = []
    for dropout in check_grid(dropouts):
        known = find_evaluation(run, dropout, episodes, seed)
        result = known or evaluate(run, dropout=dropout, episodes=episodes, seed=seed, warn=warn)[0]
        say(f"{run.path} at {dropout:.4g} blackout: {result.mean:.1f}{' (evaluated before)' if known else ''}")
        results.append(result)
    return Degradation(run, tuple(results))


def table(degradations: Sequence[Degradation]) -> str:
    """Mean returns, one line for each run, and the area under its curve."""
    width = max(len(str(degradation.run.path)) for degradation in degradations)
    header = " ".join(f"{p:>8.4g}" for p in degradations[0].dropouts)
    lines = [f"{'run':{width}} {header} {'area':>8} {'steps':>12}"]
    for degradation in degradations:
        numbers = " ".join(f"{mean:8.1f}" for mean in degradation.means)
        lines.append(f"{degradation.run.path!s:{width}} {numbers} {degradation.area:8.1f} {_steps(degradation):>12}")
    return "\n".join(lines)


def _steps(degradation: Degradation) -> str:
    """Training steps of the checkpoint, with a mark if the run has not used up its budget."""
    config, steps = degradation.run.config, degradation.evaluations[0].env_steps
    return f"{steps:,}" if steps == config.final_steps else f"{steps:,} (unfinished)"


def to_json(degradations: Sequence[Degradation]) -> list[dict[str, object]]:
    return [
        {
            "run": pathlib.Path(degradation.run.path).name,
            "task": degradation.run.config.task,
            "seed": degradation.run.config.seed,
            "env_steps": degradation.evaluations[0].env_steps,
            "dropouts": degradation.dropouts.tolist(),
            "means": degradation.means.tolist(),
            "medians": [evaluation.median for evaluation in degradation.evaluations],
            "area": degradation.area,
        }
        for degradation in degradations
    ]
