"""Compute the numbers of a report: final scores, aggregates over tasks, comparisons, degradation areas."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costate.experiments.collection import COSTATE, WINDOW, Collection, Entry, end_of
from costate.experiments.statistics import (
    Interval,
    improvement_interval,
    interquartile_mean,
    mean,
    median,
    standard_deviation,
    stratified_bootstrap,
)
from costate.trained.robustness import area_under

# A run that ends below this share of the best run on its task counts as failed.
FAILED_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Cell:
    """Final scores of the finished seeds of one variant on one task."""

    task: str
    variant: str
    scores: np.ndarray
    failed: int
    """Number of seeds that ended with an error, or far below the best run on this task."""
    unfinished: int
    """Number of other seeds that have not used up their budget or have not been evaluated."""
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
    """Definition of the "final score" in a report, the same for all of its runs."""

    dropout: float | None
    """Blackout probability of the evaluation.

    None for the return at the end of training, or for each run's own probability.
    """
    as_trained: bool = False
    """True if every run is evaluated at the blackout probability of its own training."""

    @property
    def words(self) -> str:
        if self.as_trained:
            return (
                "mean return of evaluation episodes at the blackout probability of each run's own training "
                "(deterministic actions)"
            )
        if self.dropout is None:
            return f"mean training return at the end of training (noisy actions; up to {WINDOW} points)"
        return f"mean return of evaluation episodes at {self.dropout:.4g} blackout (deterministic actions)"

    def score(self, entry: Entry) -> float:
        dropout = entry.config.sensors.dropout if self.as_trained else self.dropout
        if dropout is None:
            return entry.final_training_return
        evaluation = entry.evaluation(dropout)
        return float("nan") if evaluation is None else evaluation.mean


def choose_measure(collection: Collection) -> Measure:
    """Choose evaluations at the training blackout probability, if there are any.

    Runs without one then count as unfinished. Otherwise, all runs are scored by the end of their learning
    curve.
    """
    trained_at = {entry.config.sensors.dropout for entry in collection.entries}
    if len(trained_at) == 1:
        (dropout,) = trained_at
        if any(entry.finished and entry.evaluation(dropout) is not None for entry in collection.entries):
            return Measure(dropout)
    elif any(
        entry.finished and entry.evaluation(entry.config.sensors.dropout) is not None
        for entry in collection.entries
    ):
        return Measure(None, as_trained=True)
    return Measure(None)


def failure_bound(best: float) -> float:
    """Return the score below which a run counts as failed.

    It is a tenth of the best score, or ten times the best if returns are negative.
    """
    return FAILED_SHARE * best if best > 0.0 else best / FAILED_SHARE


def cells(collection: Collection, measure: Measure) -> list[Cell]:
    """Return a cell for each task and variant with any run. Without finished runs its scores are empty."""
    found = []
    for task in collection.tasks:
        scores = {
            variant: _scores(collection.cell(task, variant), measure) for variant in collection.variants
        }
        best = max((float(values.max()) for values in scores.values() if len(values)), default=0.0)
        for variant, values in scores.items():
            entries = collection.cell(task, variant)
            if entries:
                stopped = sum(entry.failure is not None and not entry.finished for entry in entries)
                failed = int(np.sum(values < failure_bound(best))) + stopped
                found.append(
                    Cell(
                        task, variant, values, failed, len(entries) - len(values) - stopped, _costate(entries)
                    )
                )
    return found


def _scores(entries: list[Entry], measure: Measure) -> np.ndarray:
    values = np.array([measure.score(entry) for entry in entries if entry.finished])
    return np.asarray(values[np.isfinite(values)])


def _costate(entries: list[Entry]) -> float:
    curves = [curve for entry in entries if entry.finished and (curve := entry.curve(COSTATE)) is not None]
    return float(np.mean([end_of(curve) for curve in curves])) if curves else float("nan")


def complete_scores(collection: Collection, measure: Measure) -> dict[str, list[np.ndarray]]:
    """Return the scores of each variant on the tasks on which every variant has finished runs.

    Only on these tasks can the variants be compared.
    """
    by_cell = {
        (cell.task, cell.variant): cell.scores for cell in cells(collection, measure) if len(cell.scores)
    }
    shared = [
        task
        for task in collection.tasks
        if all((task, variant) in by_cell for variant in collection.variants)
    ]
    return (
        {variant: [by_cell[task, variant] for task in shared] for variant in collection.variants}
        if shared
        else {}
    )


def over_tasks(tasks: Sequence[np.ndarray]) -> Interval | None:
    """Return the interquartile mean of the runs of all tasks together.

    None if tasks have unequal numbers of runs, since these would weigh the tasks in the pooled mean.
    """
    return (
        stratified_bootstrap(tasks, interquartile_mean) if len({len(task) for task in tasks}) == 1 else None
    )


def improvements(scores: dict[str, list[np.ndarray]]) -> list[tuple[str, str, Interval]]:
    """Return P(x beats y) for each pair of variants whose x comes later in the sweep than y."""
    names = list(scores)
    return [
        (x, y, improvement_interval(scores[x], scores[y]))
        for j, y in enumerate(names)
        for x in names[j + 1 :]
    ]


def areas(collection: Collection, task: str, variant: str) -> np.ndarray:
    """Return the area under the degradation curve of each run of a cell.

    Only runs that were evaluated at all blackout probabilities of the collection count.
    """
    grid = np.array(collection.dropouts)
    return np.array(
        [
            area_under(grid, means_at(entry, collection.dropouts))
            for entry in collection.evaluated(task, variant)
        ]
    )


def means_at(entry: Entry, dropouts: Sequence[float]) -> np.ndarray:
    """Return the mean return at each of ``dropouts``, at all of which the run was evaluated."""
    return np.array(
        [evaluation.mean for dropout in dropouts if (evaluation := entry.evaluation(dropout)) is not None]
    )


class Degraded(NamedTuple):
    """Returns of a variant on a task over the blackout probability."""

    task: str
    variant: str
    means: np.ndarray
    """Mean return over seeds at each blackout probability of the collection."""
    areas: np.ndarray
    """Area under the curve of each seed."""


def degraded(collection: Collection) -> list[Degraded]:
    """Return the degradation of every variant on every task.

    Cells without a run that was evaluated at all blackout probabilities of the collection are left out.
    """
    found = []
    for task, variant in itertools.product(collection.tasks, collection.variants):
        curves = [means_at(entry, collection.dropouts) for entry in collection.evaluated(task, variant)]
        if curves:
            found.append(Degraded(task, variant, np.mean(curves, axis=0), areas(collection, task, variant)))
    return found
