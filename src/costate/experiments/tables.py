"""The numbers of a report: final scores by task and variant, aggregates over tasks, comparisons, areas under degradation curves."""

import dataclasses

import numpy as np

from costate.experiments.collection import Collection, Entry
from costate.experiments.statistics import (
    Interval,
    improvement_interval,
    interquartile_mean,
    mean,
    median,
    standard_deviation,
    stratified_bootstrap,
)
from costate.robustness import area_under

# A run that ends below this share of the best run on its task has not learned the task.
FAILED_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Cell:
    """Final scores of the finished seeds of one variant on one task."""

    task: str
    variant: str
    scores: np.ndarray
    failed: int
    """Seeds that ended below a tenth of the best run on this task."""
    unfinished: int
    costate: float
    """Mean co-state loss at the end of training."""

    @property
    def mean(self) -> float:
        return float(mean(self.scores))

    @property
    def deviation(self) -> float:
        return float(standard_deviation(self.scores))

    @property
    def median(self) -> float:
        return float(median(self.scores))

    @property
    def interquartile(self) -> Interval:
        return stratified_bootstrap([self.scores], interquartile_mean)


@dataclasses.dataclass(frozen=True)
class Measure:
    """What "final score" means in a report: the same for all of its runs."""

    dropout: float | None
    """Blackout probability of the evaluation; None for the return at the end of training."""

    @property
    def words(self) -> str:
        if self.dropout is None:
            return "mean training return of the last 30 iterations (noisy actions)"
        return f"mean return of evaluation episodes at {self.dropout:.4g} blackout (deterministic actions)"

    def score(self, entry: Entry) -> float:
        if self.dropout is None:
            return entry.final_training_return
        evaluation = entry.evaluation(self.dropout)
        return float("nan") if evaluation is None else evaluation.mean


def choose_measure(collection: Collection) -> Measure:
    """Evaluations in distribution if every finished run has them; otherwise the end of the learning curve, for all."""
    finished = [entry for entry in collection.entries if entry.finished]
    trained_at = {entry.config.sensors.dropout for entry in collection.entries}
    if len(trained_at) == 1:
        (dropout,) = trained_at
        if finished and all(entry.evaluation(dropout) is not None for entry in finished):
            return Measure(dropout)
    return Measure(None)


def cells(collection: Collection, measure: Measure) -> list[Cell]:
    """One for each task and variant that has any run; without finished runs its scores are empty."""
    found = []
    for task in collection.tasks:
        scores = {variant: _scores(collection.cell(task, variant), measure) for variant in collection.variants}
        best = max((float(values.max()) for values in scores.values() if len(values)), default=0.0)
        for variant, values in scores.items():
            entries = collection.cell(task, variant)
            if entries:
                failed = int(np.sum(values < FAILED_SHARE * best))
                unfinished = sum(not entry.finished for entry in entries)
                found.append(Cell(task, variant, values, failed, unfinished, _costate(entries)))
    return found


def _scores(entries: list[Entry], measure: Measure) -> np.ndarray:
    values = np.array([measure.score(entry) for entry in entries if entry.finished])
    return np.asarray(values[np.isfinite(values)])


def _costate(entries: list[Entry]) -> float:
    curves = [curve for entry in entries if (curve := entry.curve("losses/costate")) is not None]
    return float(np.mean([curve.values[-30:].mean() for curve in curves])) if curves else float("nan")


def complete_scores(collection: Collection, measure: Measure) -> dict[str, list[np.ndarray]]:
    """For each variant its scores on the tasks on which every variant has finished runs: only there can they be compared."""
    by_cell = {(cell.task, cell.variant): cell.scores for cell in cells(collection, measure) if len(cell.scores)}
    shared = [task for task in collection.tasks if all((task, variant) in by_cell for variant in collection.variants)]
    return {variant: [by_cell[task, variant] for task in shared] for variant in collection.variants} if shared else {}


def improvements(scores: dict[str, list[np.ndarray]]) -> list[tuple[str, str, Interval]]:
    """P(row beats column) for every ordered pair in which the row comes later in the sweep than the column."""
    names = list(scores)
    return [(x, y, improvement_interval(scores[x], scores[y])) for j, y in enumerate(names) for x in names[j + 1 :]]


def areas(collection: Collection, task: str, variant: str) -> np.ndarray:
    """Area under the degradation curve of every run of a cell that was evaluated at all probabilities."""
    grid = np.array(collection.dropouts)
    entries = [entry for entry in collection.cell(task, variant) if len(entry.evaluations) == len(grid)]
    return np.array([area_under(grid, np.array([evaluation.mean for evaluation in entry.evaluations])) for entry in entries])
